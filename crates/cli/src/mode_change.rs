//! Modes as `chmod` takes them: an octal number, or clauses such as `u+rwX,go=r` and `-4000`.
//!
//! `chmod`, `mkdir`, `mknod`, `build` and `find -perm` parse modes with it. A mode that GNU `chmod`
//! refuses is a usage error.

/// A change of permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModeChange {
    /// All bits; the set-id bits of a directory stay unless `whole`.
    Octal { mode: u32, whole: bool },
    /// One clause after the other.
    Clauses(Vec<Clause>),
}

/// A clause: whose bits to change, and the actions on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clause {
    /// The bits of the classes of users that the clause names; `None` if it names none.
    whose: Option<u32>,
    actions: Vec<Action>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Action {
    operator: u8,
    operand: Operand,
}

/// The bits that an action is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operand {
    /// Letters, which stand for bits of the classes of users.
    Letters(Box<str>),
    /// An octal number, which names every bit itself.
    Bits(u32),
}

impl ModeChange {
    /// Reads an octal or a symbolic mode.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if is_octal(text) {
            return Some(Self::Octal {
                mode: octal(text)?,
                whole: text.len() > 4,
            });
        }
        text.split(',')
            .map(Clause::parse)
            .collect::<Option<_>>()
            .map(Self::Clauses)
    }

    /// Reads an octal or a symbolic mode of the command line. The error says how to write one.
    pub(crate) fn argument(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| "write it as 644 or u+rwX,go=r".to_owned())
    }

    /// Returns the permission bits that the change makes of the bits of `mode`. A clause that names
    /// no class of users sets none of the bits of `umask`, and clears them with `=` only.
    pub(crate) fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        let mode = mode & 0o7777;
        match self {
            Self::Octal { mode: new, whole } => {
                let kept = if is_directory && !whole {
                    mode & 0o6000
                } else {
                    0
                };
                new | kept
            }
            Self::Clauses(clauses) => clauses
                .iter()
                .fold(mode, |mode, clause| clause.apply(mode, is_directory, umask)),
        }
    }
}

impl Clause {
    fn parse(text: &str) -> Option<Self> {
        let operator_at = text.find(['+', '-', '='])?;
        let (who, mut rest) = text.split_at(operator_at);
        if who.is_empty() && is_octal(&rest[1..]) {
            let action = Action {
                operator: rest.as_bytes()[0],
                operand: Operand::Bits(octal(&rest[1..])?),
            };
            return Some(Self {
                whose: None,
                actions: vec![action],
            });
        }
        let mut whose = None;
        for letter in who.bytes() {
            *whose.get_or_insert(0) |= match letter {
                b'u' => 0o4700,
                b'g' => 0o2070,
                b'o' => 0o1007,
                b'a' => 0o7777,
                _ => return None,
            };
        }
        let mut actions = Vec::new();
        while let Some(operator) = rest.bytes().next() {
            let end = rest[1..]
                .find(['+', '-', '='])
                .map_or(rest.len(), |end| end + 1);
            let letters = &rest[1..end];
            if !letters.bytes().all(|letter| b"rwxXstugo".contains(&letter)) {
                return None;
            }
            actions.push(Action {
                operator,
                operand: Operand::Letters(letters.into()),
            });
            rest = &rest[end..];
        }
        Some(Self { whose, actions })
    }

    fn apply(&self, mode: u32, is_directory: bool, umask: u32) -> u32 {
        self.actions.iter().fold(mode, |mode, action| {
            let (bits, cleared) = match &action.operand {
                Operand::Bits(bits) => (*bits, 0o7777),
                Operand::Letters(letters) => {
                    let whose = self.whose.unwrap_or(0o7777 & !umask);
                    // The umask keeps bits from being set, not from being cleared; a directory
                    // keeps its set-id bits.
                    let cleared =
                        self.whose.unwrap_or(0o7777) & if is_directory { !0o6000 } else { !0 };
                    (bits(letters, mode, is_directory) & whose, cleared)
                }
            };
            match action.operator {
                b'+' => mode | bits,
                b'-' => mode & !bits,
                _ => mode & !cleared | bits,
            }
        })
    }
}

/// Returns the bits that letters stand for, where a file has this mode.
fn bits(letters: &str, mode: u32, is_directory: bool) -> u32 {
    let copied = |shift: u32| 0o111 * (mode >> shift & 7);
    letters.bytes().fold(0, |bits, letter| {
        bits | match letter {
            b'r' => 0o444,
            b'w' => 0o222,
            b'x' => 0o111,
            b'X' if is_directory || mode & 0o111 != 0 => 0o111,
            b's' => 0o6000,
            b't' => 0o1000,
            b'u' => copied(6),
            b'g' => copied(3),
            b'o' => copied(0),
            _ => 0,
        }
    })
}

fn is_octal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte))
}

fn octal(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
}

#[cfg(test)]
mod tests {
    use super::ModeChange;

    #[test]
    fn modes_change_as_with_gnu_chmod() {
        let check = |dir, before, text: &str, after| {
            let change = ModeChange::parse(text).expect(text);
            let found = change.apply(before, dir, 0o022);
            assert_eq!(found, after, "{before:o} {text}: {found:o}");
        };
        // The expected results are the results of GNU chmod 9.4 with umask 022.
        check(true, 0o2775, "g=rx", 0o2755);
        check(true, 0o6755, "755", 0o6755);
        check(true, 0o6755, "00755", 0o755);
        check(true, 0o6755, "a=rx", 0o6555);
        check(true, 0o6755, "u=rwx,go=rx", 0o6755);
        check(true, 0o6755, "g-s", 0o4755);
        check(true, 0o7777, "=", 0o6000);
        check(true, 0o6755, "=rx", 0o6555);
        check(false, 0o6755, "755", 0o755);
        check(false, 0o644, "+w", 0o644);
        check(false, 0o644, "a+w", 0o666);
        check(false, 0o755, "=r", 0o444);
        check(false, 0o1755, "o=r", 0o754);
        check(false, 0o755, "u=g", 0o555);
        check(false, 0o644, "+X", 0o644);
        check(true, 0o644, "+X", 0o755);
        check(false, 0o744, "g+X", 0o754);
        check(false, 0o4755, "u=rwx", 0o755);
        check(false, 0o644, "+t", 0o1644);
        check(false, 0o644, "u+t", 0o644);
        check(false, 0o777, "-w", 0o577);
        check(false, 0o644, "u+rw-x,g=u", 0o664);
        check(false, 0o7777, "a-s", 0o1777);
        check(false, 0, "+6000", 0o6000);
        check(false, 0o7777, "-600", 0o7177);
        check(false, 0, "+6,-2", 0o4);
        check(false, 0o640, "+00100,u-r", 0o340);
        check(true, 0o6755, "=755", 0o755);
        check(true, 0o6755, "-2000,g+w", 0o4775);
    }

    #[test]
    fn a_text_that_is_no_mode_is_refused() {
        for text in [
            "", "888", "77777", "u", "q+r", "u+q", "u+r,", "+r+q", "-8", "+17777", "u=7", "+1+2",
            "-2x", "+2,x",
        ] {
            assert_eq!(ModeChange::parse(text), None, "{text}");
        }
    }
}
