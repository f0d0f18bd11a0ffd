//! Which known name somebody meant who wrote an unknown one, and how a stranger's text is quoted.

use super::keys;
use super::problem::{Hint, Problem};
use super::section::Section;

/// Longer text is cut when quoted, so that a mistake stays one readable line.
const MOST_QUOTED: usize = 60;

/// Of more things than these the rest is only counted in a mistake.
const MOST_LISTED: usize = 8;

/// Longer names are not compared with others: the time for that grows with the square of their
/// length.
const MOST_COMPARED: usize = 128;

/// `text` in quotes, on one line, with nothing that could drive a terminal.
pub(super) fn quote(text: &str) -> String {
    match text.char_indices().nth(MOST_QUOTED) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// `name` as a part of a path: as it is if it is a plain key, quoted otherwise.
pub(super) fn segment(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= MOST_QUOTED && name.chars().all(plain) { name.to_owned() } else { quote(name) }
}

/// The first of `parts`, as many as fit a readable line, and how many more there are.
pub(super) fn first_few(parts: impl ExactSizeIterator<Item = String>) -> String {
    let more = parts.len().saturating_sub(MOST_LISTED);
    let more = (more > 0).then(|| format!("{more} more"));
    parts.take(MOST_LISTED).chain(more).collect::<Vec<_>>().join(", ")
}

/// The candidate that `name` is most likely a misspelling of: one letter in three may differ, but
/// never more than three, lest every long name be like every other.
pub(super) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MOST_COMPARED {
        return None;
    }
    let tolerated = (name.chars().count() / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= tolerated)
        .min()
        .map(|(_, candidate)| candidate)
}

/// What is wrong with a key that `section` does not have.
pub(super) fn unknown_key(section: Section, name: &str) -> Problem {
    if keys::unsupported(section).any(|key| key == name) {
        return Problem::NotSupported(name.to_owned());
    }
    let known: Vec<_> = keys::of(section).map(|key| key.name).chain(section.inner_tables()).collect();
    let homes = keys::homes_of(name);
    Problem::UnknownKey(if !homes.is_empty() {
        Hint::BelongsIn(homes)
    } else if let Some(meant) = closest(name, known.iter().copied()) {
        Hint::DidYouMean(meant.to_owned())
    } else {
        Hint::Known(known)
    })
}

/// What is wrong with a section that does not exist.
pub(super) fn unknown_section(name: &str) -> Problem {
    let known = Section::ALL.map(Section::header);
    let homes = keys::homes_of(name);
    if !homes.is_empty() {
        return Problem::UnknownKey(Hint::BelongsIn(homes));
    }
    Problem::UnknownSection(match closest(name, Section::ALL.map(Section::table)) {
        Some(meant) => Hint::DidYouMean(meant.to_owned()),
        None => Hint::Known(known.to_vec()),
    })
}
