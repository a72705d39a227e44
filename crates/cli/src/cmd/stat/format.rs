//! `stat -c` and `--printf`: GNU `stat`'s %-directives.
//!
//! `stat` prints with it. The result is that of GNU `stat`; a directive that it does not have is
//! printed as `?`.

use extern4::{Metadata, StatFs, Timespec};

use crate::id_names::IdNames;
use crate::text::{Field, ModeText, escape_sequence, full_time, shell_quote, type_name};

/// A format of the command line.
#[derive(Clone, Copy)]
pub(super) struct Format<'a> {
    pub(super) text: &'a str,
    /// Whether a backslash begins an escape, and there is no line feed at the end: `--printf`.
    pub(super) escapes: bool,
}

/// The value of a directive.
pub(super) enum Value {
    Text(Vec<u8>),
    Number(String),
    /// Seconds, of which a precision asks for the fraction.
    Seconds(Timespec),
}

impl Format<'_> {
    /// Returns the format with every directive replaced by its value. `value` gets the letter of a
    /// directive, and the `H` or `L` before it.
    pub(super) fn fill(self, value: impl Fn(Option<char>, char) -> Option<Value>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut rest = self.text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '\\' if self.escapes => match escape_sequence(&mut rest) {
                    Some(bytes) => out.extend(bytes),
                    None => return out,
                },
                '%' => {
                    let field = Field::parse(&mut rest);
                    let part = rest.next_if(|c| matches!(c, 'H' | 'L'));
                    match rest.next() {
                        None | Some('%') => out.push(b'%'),
                        Some(letter) => match value(part, letter) {
                            Some(value) => value.push(&field, &mut out),
                            None => out.push(b'?'),
                        },
                    }
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if !self.escapes {
            out.push(b'\n');
        }
        out
    }
}

impl Value {
    fn text(text: impl Into<Vec<u8>>) -> Option<Self> {
        Some(Self::Text(text.into()))
    }

    fn number(number: impl ToString) -> Option<Self> {
        Some(Self::Number(number.to_string()))
    }

    fn push(&self, field: &Field, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) => field.push_text(text, out),
            Self::Number(number) => field.push_number(number, out),
            Self::Seconds(time) => field.push_number(&seconds(*time, field.precision), out),
        }
    }
}

/// Returns whole seconds, or with as many digits behind the point as the precision says.
fn seconds(time: Timespec, precision: Option<Option<usize>>) -> String {
    match precision.map(|digits| digits.unwrap_or(9)) {
        None | Some(0) => time.sec.to_string(),
        Some(digits) => {
            let exact = super::seconds(time);
            let point = exact.find('.').unwrap_or(exact.len());
            let kept = exact.len().min(point + 1 + digits);
            format!("{:0<width$}", &exact[..kept], width = point + 1 + digits)
        }
    }
}

/// The file that a format describes.
pub(super) struct File<'a> {
    /// The name as it is shown.
    pub(super) name: Vec<u8>,
    /// The target, if it is a symbolic link.
    pub(super) link: Option<Vec<u8>>,
    /// The image, as the command line names it.
    pub(super) image: String,
    /// The security context (SELinux).
    pub(super) context: Option<Vec<u8>>,
    /// The image's user and group names.
    pub(super) names: &'a IdNames,
    /// The file's attributes.
    pub(super) metadata: &'a Metadata,
}

impl File<'_> {
    /// Returns the value of a directive.
    pub(super) fn value(&self, part: Option<char>, letter: char) -> Option<Value> {
        let metadata = self.metadata;
        let kind = metadata.file_type();
        match (part, letter) {
            (Some('H'), 'r') => return Value::number(metadata.rdev().major),
            (Some(_), 'r') => return Value::number(metadata.rdev().minor),
            (Some(_), _) => return None,
            (None, _) => {}
        }
        match letter {
            'n' => Value::text(self.name.clone()),
            'a' => Value::number(format!("{:o}", metadata.mode() & 0o7777)),
            'A' => Value::text(
                ModeText {
                    kind,
                    mode: metadata.mode(),
                }
                .to_string(),
            ),
            'b' => Value::number(metadata.blocks()),
            'B' => Value::number(512),
            'C' => Value::text(self.context.clone().unwrap_or_else(|| b"?".to_vec())),
            'f' => Value::number(format!("{:x}", metadata.mode())),
            'F' => Value::text(type_name(kind, metadata.len())),
            'g' => Value::number(metadata.gid()),
            'G' => Value::text(name_or_unknown(
                metadata.gid(),
                self.names.has_group(metadata.gid()),
                |gid| self.names.group(gid).into_owned(),
            )),
            'h' => Value::number(metadata.nlink()),
            'i' => Value::number(metadata.ino()),
            'm' => Value::text(self.image.clone()),
            'N' => Value::text(self.quoted()),
            'o' => Value::number(metadata.blksize()),
            'r' => Value::number(device(metadata)),
            'R' => Value::number(format!("{:x}", device(metadata))),
            's' => Value::number(metadata.len()),
            't' => Value::number(format!("{:x}", metadata.rdev().major)),
            'T' => Value::number(format!("{:x}", metadata.rdev().minor)),
            'u' => Value::number(metadata.uid()),
            'U' => Value::text(name_or_unknown(
                metadata.uid(),
                self.names.has_user(metadata.uid()),
                |uid| self.names.user(uid).into_owned(),
            )),
            'w' => Value::text(metadata.btime().map_or_else(|| "-".to_owned(), full_time)),
            'x' => Value::text(full_time(metadata.atime())),
            'y' => Value::text(full_time(metadata.mtime())),
            'z' => Value::text(full_time(metadata.ctime())),
            'W' => Some(Value::Seconds(
                metadata.btime().unwrap_or(Timespec { sec: 0, nsec: 0 }),
            )),
            'X' => Some(Value::Seconds(metadata.atime())),
            'Y' => Some(Value::Seconds(metadata.mtime())),
            'Z' => Some(Value::Seconds(metadata.ctime())),
            _ => None,
        }
    }

    fn quoted(&self) -> String {
        let quote = |name: &[u8]| {
            let quoted = shell_quote(name);
            if quoted.starts_with(['\'', '"']) {
                quoted.into_owned()
            } else {
                format!("'{quoted}'")
            }
        };
        match &self.link {
            Some(link) => format!("{} -> {}", quote(&self.name), quote(link)),
            None => quote(&self.name),
        }
    }
}

/// Returns a device's number as Linux writes it in one.
fn device(metadata: &Metadata) -> u64 {
    rustix::fs::makedev(metadata.rdev().major, metadata.rdev().minor)
}

fn name_or_unknown(id: u32, known: bool, name: impl FnOnce(u32) -> String) -> String {
    if known {
        name(id)
    } else {
        "UNKNOWN".to_owned()
    }
}

/// Returns the number of a file system as GNU `stat` writes that of the kernel's mount, with the
/// halves the other way round.
pub(super) fn id(found: &StatFs) -> String {
    format!("{:x}", found.fsid.rotate_left(32))
}

/// Returns the value of a directive about a file system.
pub(super) fn of_file_system(name: &[u8], found: &StatFs, letter: char) -> Option<Value> {
    match letter {
        'n' => Value::text(name),
        'a' => Value::number(found.blocks_available),
        'b' => Value::number(found.blocks),
        'c' => Value::number(found.files),
        'd' => Value::number(found.files_free),
        'f' => Value::number(found.blocks_free),
        'i' => Value::number(id(found)),
        'l' => Value::number(found.name_max),
        's' | 'S' => Value::number(found.block_size),
        't' => Value::number(format!("{:x}", found.magic)),
        'T' => Value::text("ext2/ext3"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, Value, seconds};
    use extern4::Timespec;

    #[test]
    fn formats_are_filled() {
        let check = |text: &str, escapes, filled: &str| {
            let format = Format { text, escapes };
            let value = |part: Option<char>, letter| match letter {
                's' => Some(Value::Number("12".to_owned())),
                'n' => Some(Value::Text(b"name".to_vec())),
                'r' => Some(Value::Text(
                    part.map_or(b"-".to_vec(), |part| part.to_string().into_bytes()),
                )),
                _ => None,
            };
            assert_eq!(
                String::from_utf8(format.fill(value)).expect("text"),
                filled,
                "{text}"
            );
        };
        check(
            "%n|%5s|%-5s|%05s|%.2n",
            false,
            "name|   12|12   |00012|na\n",
        );
        check("%n\\n", false, "name\\n\n");
        check("%n\\n\\x41", true, "name\nA");
        check("%q %% %Hr %r %", false, "? % H - %\n");
    }

    #[test]
    fn seconds_have_the_digits_asked_for() {
        let time = Timespec {
            sec: 5,
            nsec: 120_000_000,
        };
        assert_eq!(seconds(time, None), "5");
        assert_eq!(seconds(time, Some(Some(1))), "5.1");
        assert_eq!(seconds(time, Some(None)), "5.120000000");
        assert_eq!(seconds(time, Some(Some(11))), "5.12000000000");
    }
}
