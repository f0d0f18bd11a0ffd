//! The `states!` macro: one declaration gives a machine its enum, its names and its table.

/// Declares a machine. The rows of `allowed` become both the table and the check, so the two cannot disagree; a state without a
/// row is final.
macro_rules! states {
    (
        $(#[$meta:meta])*
        pub enum $State:ident as $machine:literal {
            $( $(#[$doc:meta])* $state:ident => $name:literal, )+
        }
        allowed {
            $( $from:ident => $($to:ident)|+, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $State {
            $( $(#[$doc])* $state, )+
        }

        impl $crate::state::State for $State {
            const MACHINE: &'static str = $machine;
            const ALL: &'static [Self] = &[$(Self::$state),+];
            const TABLE: &'static [(Self, Self)] = &[$($((Self::$from, Self::$to),)+)+];

            fn allows(self, to: Self) -> bool {
                match self {
                    $( Self::$from => matches!(to, $(Self::$to)|+), )+
                    _ => false,
                }
            }

            fn name(self) -> &'static str {
                match self {
                    $( Self::$state => $name, )+
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }

        impl ::std::fmt::Display for $State {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::state::State::name(*self))
            }
        }
    };
}

pub(super) use states;
