//! The `named_enum!` macro: an enum whose values have names for labels, logs and texts.

/// Declares an enum with the list and the names of its values.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $visibility:vis enum $Enum:ident {
            $( $(#[$doc:meta])* $variant:ident => $name:literal, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $Enum {
            $( $(#[$doc])* $variant, )+
        }

        impl $Enum {
            /// Every value, at the index `value as usize`.
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The `snake_case` name.
            #[must_use]
            $visibility const fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )+
                }
            }
        }

        impl ::std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

pub(crate) use named_enum;
