//! Text for people and for TOML files: quoting, listing, and the nearest of several names.

/// Longer text is cut when quoted, so that a mistake stays one readable line.
const QUOTED_MAX_CHARS: usize = 60;
/// Further items of a list in a mistake are only counted.
const LISTED_MAX_ITEMS: usize = 8;
/// Longer names get no suggestion: comparing takes time quadratic in their length.
const COMPARED_MAX_BYTES: usize = 128;
/// Differing letters that a suggestion tolerates at most, lest every long name be like every other.
const MAX_EDIT_DISTANCE: usize = 3;

/// `text` in quotes, on one line, without control characters.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX_CHARS) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// `name` as a part of a path in a mistake: as it is if it is a bare key, quoted otherwise.
pub(super) fn segment(name: &str) -> String {
    if is_bare(name) && name.len() <= QUOTED_MAX_CHARS { name.to_owned() } else { quote(name) }
}

/// `name` as a part of a TOML header. A quoted value would not do: it may span lines.
pub(super) fn toml_key(name: &str) -> String {
    if is_bare(name) {
        return name.to_owned();
    }
    let escaped = name.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn is_bare(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

pub(super) fn toml_string(text: impl Into<String>) -> String {
    toml::Value::String(text.into()).to_string()
}

/// An array of strings in TOML.
pub(super) fn toml_strings<T: AsRef<str>>(items: &[T]) -> String {
    toml::Value::Array(items.iter().map(|item| item.as_ref().into()).collect()).to_string()
}

/// The first of `items`, as many as fit a readable line, and the number of the others.
pub(super) fn first_few(items: impl ExactSizeIterator<Item = String>) -> String {
    let others = items.len().saturating_sub(LISTED_MAX_ITEMS);
    let others = (others > 0).then(|| format!("{others} more"));
    items.take(LISTED_MAX_ITEMS).chain(others).collect::<Vec<_>>().join(", ")
}

/// The candidate that `name` is most likely a misspelling of: one letter in three may differ.
pub(super) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > COMPARED_MAX_BYTES {
        return None;
    }
    let tolerated = (name.chars().count() / 3).clamp(1, MAX_EDIT_DISTANCE);
    let distances = candidates.into_iter().map(|candidate| (strsim::osa_distance(name, candidate), candidate));
    distances.filter(|(distance, _)| *distance <= tolerated).min().map(|(_, candidate)| candidate)
}
