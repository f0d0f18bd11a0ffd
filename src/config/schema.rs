//! The form of a key's declaration, and the code that is generated from it.

/// Effect of a changed value when the configuration is reloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The new value applies at once.
    Applied,
    /// The kind's workers are replaced, one after the other: one that runs keeps what it was started with.
    Rolls,
    KindAdded,
    KindRemoved,
    /// Only a restart of the server makes it apply.
    NeedsRestart,
}

/// Value of a key that is not written. Texts are TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// The key must be written, like this example; the second text says how.
    Required(&'static str, &'static str),
    /// No value; the text is an example of one.
    Unset(&'static str),
    /// A default, as `show` would write it.
    Default(&'static str),
    /// A default of a key that may be written only if another key has the right value.
    Dependent(&'static str),
}

/// One key of the configuration.
#[derive(Debug)]
pub(super) struct ConfigKey {
    pub(super) name: &'static str,
    pub(super) fallback: Fallback,
    pub(super) effect: Effect,
    doc: &'static str,
}

impl ConfigKey {
    pub(super) const fn new(name: &'static str, fallback: Fallback, effect: Effect, doc: &'static str) -> Self {
        Self { name, fallback, effect, doc }
    }

    /// The documentation for users, which says why the default is what it is.
    pub(super) fn doc(&self) -> &'static str {
        // Each line of a doc comment begins with a space, which separates it from the line before.
        self.doc.trim_start()
    }
}

/// Suffix of a header that stands for any number of sections, each with a NAME of its own.
const NAME: &str = ".NAME";

/// A section of the file.
#[derive(Debug)]
pub(super) struct Section {
    /// The text in the brackets of its header.
    pub(super) header: &'static str,
    pub(super) doc: &'static str,
    pub(super) tables: &'static [&'static [ConfigKey]],
    /// Keys that are planned, but that this version does not know.
    pub(super) unsupported: &'static [&'static str],
}

impl Section {
    pub(super) const fn new(header: &'static str, doc: &'static str, tables: &'static [&'static [ConfigKey]]) -> Self {
        Self { header, doc, tables, unsupported: &[] }
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &'static ConfigKey> {
        self.tables.iter().copied().flatten()
    }

    /// The key called `name`, which the section must have.
    pub(super) fn key(&self, name: &str) -> &'static ConfigKey {
        self.keys().find(|key| key.name == name).expect("the section has the keys of its struct")
    }

    /// True if there is one such section for each NAME.
    pub(super) fn is_named(&self) -> bool {
        self.header.ends_with(NAME)
    }

    /// The tables that lead to it, from the top of the file; of a named section the last one holds all of them.
    pub(super) fn path<'a>(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let header: &'a str = self.header;
        header.trim_end_matches(NAME).split('.')
    }

    /// The name of its table at the top of the file.
    pub(super) fn root(&self) -> &'static str {
        self.path().next().expect("a header has a first part")
    }
}

/// A key and its value in TOML; `None` if it is unset.
pub(super) type KeyValue = (&'static ConfigKey, Option<String>);

/// Declares the keys of a section. Each has the form
///
/// ```text
/// /// The documentation, for users and in the code.
/// name: Type = Format, Fallback(value in TOML), Effect of a reload;
/// ```
///
/// From these come a struct with a field for each key, its table of keys, the reader, which fills a struct with a
/// [`Setting`](super::reader::Setting) for each key so that rules can compare them, and the writer. Fields that
/// are not keys of their own follow in `with { ... }`.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        $vis:vis struct $config:ident, $settings:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty = $format:expr, $fallback:ident($($default:tt)+), $effect:ident;
            )+
        }
        $(with { $($(#[$extra_meta:meta])* $extra:ident: $extra_type:ty,)+ })?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[allow(
            rustdoc::broken_intra_doc_links, rustdoc::bare_urls, clippy::doc_markdown, clippy::doc_link_with_quotes,
            clippy::struct_excessive_bools,
            reason = "the texts are for users of the config file, who choose each value on its own"
        )]
        $vis struct $config {
            $($($(#[$extra_meta])* $vis $extra: $extra_type,)+)?
            $($(#[doc = $doc])+ $vis $key: $type,)+
        }

        impl $config {
            pub(in crate::config) const KEYS: &'static [$crate::config::schema::ConfigKey] = &[$(
                $crate::config::schema::ConfigKey::new(
                    stringify!($key),
                    $crate::config::schema::fallback!($fallback $($default)+),
                    $crate::config::schema::Effect::$effect,
                    concat!($($doc),+),
                )
            ),+];

            /// The keys with their values.
            pub(in crate::config) fn entries(
                &self,
                section: &$crate::config::schema::Section,
            ) -> Vec<$crate::config::schema::KeyValue> {
                use $crate::config::format::Format;
                vec![$((section.key(stringify!($key)), Format::show(&$format, &self.$key))),+]
            }
        }

        /// The values with their origins.
        pub(in crate::config) struct $settings<'t> {
            $(pub(in crate::config) $key: $crate::config::reader::Setting<'t, $type>,)+
        }

        impl<'t> $settings<'t> {
            pub(in crate::config) fn read(section: &$crate::config::reader::SectionReader<'t>) -> Self {
                Self { $($key: section.read(stringify!($key), &$format)),+ }
            }

            pub(in crate::config) fn into_config(self $($(, $extra: $extra_type)+)?) -> $config {
                $config { $($($extra,)+)? $($key: self.$key.value,)+ }
            }
        }
    };
}

/// A [`Fallback`] whose value is written as TOML tokens.
macro_rules! fallback {
    (Required $example:tt, $how:literal) => {
        $crate::config::schema::Fallback::Required(stringify!($example), $how)
    };
    ($fallback:ident $value:tt) => {
        $crate::config::schema::Fallback::$fallback(stringify!($value))
    };
}

pub(super) use {fallback, keys};
