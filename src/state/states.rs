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
        $crate::state::named_enum! {
            $(#[$meta])*
            pub enum $State {
                $( $(#[$doc])* $state => $name, )+
            }
        }

        impl $crate::state::State for $State {
            const MACHINE: &'static str = $machine;
            const STATES: &'static [Self] = &Self::ALL;
            const TABLE: &'static [(Self, Self)] = &[$($((Self::$from, Self::$to),)+)+];

            fn allows(self, to: Self) -> bool {
                $( (matches!(self, Self::$from) && matches!(to, $(Self::$to)|+)) )||+
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(super) use states;
