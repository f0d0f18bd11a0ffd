//! The `states!` macro: one declaration gives a machine its enum, its names and its table.

/// Declares a machine. The rows of `allowed` become both the readable table and the bit masks that
/// checks use, so the two cannot disagree; a state without a row is final.
macro_rules! states {
    (
        $(#[$meta:meta])*
        pub enum $State:ident as $machine:literal {
            $( $(#[$doc:meta])* $state:ident $(= $number:literal)? => $name:literal, )+
        }
        allowed {
            $( $from:ident => $($to:ident)|+, )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $State {
            $( $(#[$doc])* $state $(= $number)?, )+
        }

        impl $crate::state::State for $State {
            const MACHINE: &'static str = $machine;
            const ALL: &'static [Self] = &[$(Self::$state),+];
            const TABLE: &'static [(Self, Self)] = &[$($((Self::$from, Self::$to),)+)+];
            const MASKS: &'static [u32] = &{
                let mut masks = [0; Self::ALL.len()];
                let mut row = 0;
                while row < Self::TABLE.len() {
                    let (from, to) = Self::TABLE[row];
                    masks[from as usize] |= 1 << to as u32;
                    row += 1;
                }
                masks
            };

            fn name(self) -> &'static str {
                match self {
                    $( Self::$state => $name, )+
                }
            }

            fn index(self) -> usize {
                self as usize
            }
        }

        // A state whose number is not its place in `ALL` would be read back as another state.
        const _: () = {
            let all = <$State as $crate::state::State>::ALL;
            let mut index = 0;
            while index < all.len() {
                assert!(all[index] as usize == index, "states are declared in order of number");
                index += 1;
            }
        };

        impl ::std::fmt::Display for $State {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::state::State::name(*self))
            }
        }
    };
}

pub(super) use states;
