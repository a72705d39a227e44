//! The comparison of two files, as `diff` of GNU compares them: texts line by line, others as a
//! whole.

use super::Both;
use super::contents::{OneError, OpenFile, same_contents};
use super::fault::Error;
use super::text::{TextDiff, TextOptions};

/// A file with a NUL byte among these first ones is no text, as in GNU diff.
const BINARY_BYTES: usize = 4096;

/// The size in bytes of the longest text that is compared by default, 128 MiB. Two texts of this
/// size that have nothing but line ends take three gigabytes of memory.
pub const MAX_TEXT_BYTES: usize = 128 << 20;

/// Returns whether a line, without its end, is such.
pub type LineTest<'o> = &'o dyn Fn(&[u8]) -> bool;

/// How two files are compared.
#[derive(Clone, Copy)]
pub struct FileOptions<'o> {
    /// Which differences of lines count.
    pub lines: TextOptions,
    /// Compares only whether files differ.
    pub brief: bool,
    /// Takes each file as text. Else one with a NUL byte among its first 4096 bytes is no text.
    pub text: bool,
    /// Ignores a carriage return at the end of a line.
    pub strip_trailing_cr: bool,
    /// Ignores changes of which all lines are blank.
    pub ignore_blank_lines: bool,
    /// Ignores changes of which all lines pass the test.
    pub ignore_lines: Option<LineTest<'o>>,
    /// The size in bytes of the longest text.
    pub max_text_bytes: usize,
}

impl Default for FileOptions<'_> {
    fn default() -> Self {
        Self {
            lines: TextOptions::default(),
            brief: false,
            text: false,
            strip_trailing_cr: false,
            ignore_blank_lines: false,
            ignore_lines: None,
            max_text_bytes: MAX_TEXT_BYTES,
        }
    }
}

/// The difference of two files.
#[derive(Debug)]
pub enum FileDifference {
    /// There is none.
    None,
    /// There is one; with [`brief`](FileOptions::brief), nothing else is known.
    Some,
    /// There is one, and a file is no text.
    Binary,
    /// Two texts have this one.
    Lines(TextDiff<'static>),
}

/// Why two files are not compared.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] OneError),
    /// A text is larger than [`max_text_bytes`](FileOptions::max_text_bytes): the new one, or else
    /// the old one.
    #[error("the text is too large to be compared")]
    TooLarge {
        /// Whether it is the new text.
        is_new: bool,
    },
}

/// Compares two files. Texts are read whole; other files, and files that only have to be the same,
/// piece by piece.
///
/// ```
/// use extern4::diff::{Both, FileDifference, FileOptions, OpenFile, TextOptions, compare_files};
///
/// # fn main() -> Result<(), extern4::diff::FileError> {
/// let old = OpenFile::of_bytes(b"one\ntwo\n".to_vec());
/// let new = OpenFile::of_bytes(b"ONE\n\ntwo\n".to_vec());
/// let files = Both { old: &old, new: &new };
/// let difference = compare_files(files, &FileOptions::default())?;
/// assert!(matches!(difference, FileDifference::Lines(lines) if lines.hunks(0).count() == 1));
///
/// let lines = TextOptions { ignore_case: true, ..TextOptions::default() };
/// let options = FileOptions { lines, ignore_blank_lines: true, ..FileOptions::default() };
/// assert!(matches!(compare_files(files, &options)?, FileDifference::None));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A file cannot be read or changed meanwhile, or two texts differ of which one is too large.
pub fn compare_files(
    files: Both<&OpenFile<'_>>,
    options: &FileOptions<'_>,
) -> Result<FileDifference, FileError> {
    let is_binary = !options.text
        && (is_binary(files.old).map_err(OneError::of_old)?
            || is_binary(files.new).map_err(OneError::of_new)?);
    let is_whole = is_binary || options.brief && options.is_exact();
    if !is_whole {
        return texts(files, options);
    }
    if same_contents(files)? {
        return Ok(FileDifference::None);
    }
    Ok(if options.brief {
        FileDifference::Some
    } else {
        FileDifference::Binary
    })
}

fn texts(
    files: Both<&OpenFile<'_>>,
    options: &FileOptions<'_>,
) -> Result<FileDifference, FileError> {
    let most = options.max_text_bytes;
    let is_large = |file: &OpenFile<'_>| file.size() > most as u64;
    if is_large(files.old) || is_large(files.new) {
        let is_new = !is_large(files.old);
        return if same_contents(files)? {
            Ok(FileDifference::None)
        } else {
            Err(FileError::TooLarge { is_new })
        };
    }
    let old = files.old.read(most).map_err(OneError::of_old)?;
    let new = files.new.read(most).map_err(OneError::of_new)?;
    let texts = Both { old, new }.map(|text| options.prepare(text));
    if texts.old == texts.new {
        return Ok(FileDifference::None);
    }
    let mut diff = TextDiff::new(texts, &options.lines);
    diff.ignore(|line| options.ignores(line));
    Ok(if diff.is_same() {
        FileDifference::None
    } else if options.brief {
        FileDifference::Some
    } else {
        FileDifference::Lines(diff)
    })
}

fn is_binary(file: &OpenFile<'_>) -> Result<bool, Error> {
    Ok(file.read(BINARY_BYTES)?.contains(&0))
}

impl FileOptions<'_> {
    /// Returns whether any byte that differs is a difference.
    fn is_exact(&self) -> bool {
        let lines = TextOptions {
            minimal: false,
            ..self.lines
        };
        lines == TextOptions::default()
            && self.ignore_lines.is_none()
            && !self.ignore_blank_lines
            && !self.strip_trailing_cr
    }

    /// Returns a text as it is compared.
    fn prepare(&self, text: Vec<u8>) -> Vec<u8> {
        if !self.strip_trailing_cr {
            return text;
        }
        let next = text.iter().skip(1).chain([&0]);
        let kept = text
            .iter()
            .zip(next)
            .filter(|pair| *pair != (&b'\r', &b'\n'));
        kept.map(|(byte, _)| *byte).collect()
    }

    /// Returns whether a change of this line alone does not count.
    fn ignores(&self, line: &[u8]) -> bool {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let any_space = self.lines.ignore_all_space
            || self.lines.ignore_space_change
            || self.lines.ignore_trailing_space;
        let is_blank = if any_space {
            text.trim_ascii().is_empty()
        } else {
            text.is_empty()
        };
        self.ignore_blank_lines && is_blank || self.ignore_lines.is_some_and(|test| test(text))
    }
}
