//! `extern4 setfattr`: sets or removes extended attributes, with values as `getfattr` writes them.
//!
//! `args` calls [`run`]. With `--restore`, the whole file is read before anything changes.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use extern4::{Session, XattrFlags};

use super::getfattr::attribute_failed;
use super::getfattr::encoding::decode;
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::interruptible;
use crate::targets::{followed, written_paths};
use crate::text::unescape;

#[derive(clap::Args)]
#[command(disable_help_flag = true, group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct Args {
    /// Files to change; with --restore, the directory that its paths start from
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    image_paths: Vec<OsString>,
    /// Set the attribute of this name
    #[arg(short, long, group = "what")]
    name: Option<OsString>,
    /// Its value: text, in quotes with \ooo for any byte, 0x and hexadecimal, or 0s and base64
    /// (default: empty)
    #[arg(short, long, requires = "name", value_parser = value, allow_hyphen_values = true)]
    value: Option<Value>,
    /// Remove the attribute of this name
    #[arg(short = 'x', long, value_name = "NAME", group = "what")]
    remove: Option<OsString>,
    /// Set what this output of getfattr -d says ('-' for standard input)
    #[arg(long, value_name = "FILE", group = "what")]
    restore: Option<PathBuf>,
    /// Change symbolic links themselves
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
}

/// The bytes of a value.
#[derive(Clone, Debug)]
struct Value(Vec<u8>);

fn value(text: &str) -> Result<Value, String> {
    decode(text.as_bytes())
        .map(Value)
        .ok_or_else(|| "neither hexadecimal nor base64".to_owned())
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    if let Some(file) = &args.restore {
        restore(file, args, app);
        return Ok(());
    }
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else {
            continue;
        };
        if let Err(error) = set(args, target.session(), target.path()) {
            let name = args
                .remove
                .as_deref()
                .or(args.name.as_deref())
                .unwrap_or_default();
            attribute_failed(&image_path, name, Some(&error), app);
        }
    }
    Ok(())
}

fn set(args: &Args, session: &Session, path: &Path) -> extern4::Result<()> {
    let path = if args.no_dereference {
        path.into()
    } else {
        followed(session, path)?
    };
    if let Some(name) = &args.remove {
        return session.lremovexattr(path, name);
    }
    let value = args.value.as_ref().map_or(&[][..], |value| &value.0);
    session.lsetxattr(
        path,
        args.name.as_deref().unwrap_or_default(),
        value,
        XattrFlags::empty(),
    )
}

/// A file and the attributes to set on it.
struct Record {
    path: PathBuf,
    attributes: Vec<(OsString, Vec<u8>)>,
}

/// Restores attributes from `file`. It reads all of the file before it changes anything.
fn restore(file: &Path, args: &Args, app: &mut App) {
    if args.image_paths.len() > 1 {
        return app.fail(
            ExitStatus::Usage,
            "--restore takes one IMAGE:/PATH, which the paths start from",
        );
    }
    let shown = crate::text::escape(file.as_os_str().as_bytes()).into_owned();
    let text = match interruptible::read(file, app.stop()) {
        Ok(text) => text,
        Err(error) => return app.fail_at(ExitStatus::Failed, &shown, host_reason(&error)),
    };
    let records = match parse(&text) {
        Ok(records) => records,
        Err((line, message)) => {
            return app.fail(
                ExitStatus::Failed,
                format_args!("{shown}:{line}: {message}"),
            );
        }
    };
    for image_path in written_paths(&args.image_paths, app) {
        let Some(target) = app.target(&image_path) else {
            return;
        };
        for record in &records {
            let path = target.path().join(&record.path);
            for (name, value) in &record.attributes {
                if let Err(error) =
                    target
                        .session()
                        .lsetxattr(&path, name, value, XattrFlags::empty())
                {
                    attribute_failed(&target.volume.image_path(&path), name, Some(&error), app);
                }
            }
        }
    }
}

fn parse(text: &[u8]) -> Result<Vec<Record>, (usize, &'static str)> {
    let mut records: Vec<Record> = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = |message| (index + 1, message);
        if let Some(path) = line.strip_prefix(b"# file: ") {
            let path = unescape(path);
            let start = path
                .iter()
                .position(|byte| *byte != b'/')
                .unwrap_or(path.len());
            let path = PathBuf::from(OsStr::from_bytes(&path[start..]));
            records.push(Record {
                path,
                attributes: Vec::new(),
            });
        } else if !line.is_empty() && !line.starts_with(b"#") {
            let record = records
                .last_mut()
                .ok_or_else(|| wrong("there is no '# file:' line before it"))?;
            let end = line
                .iter()
                .position(|byte| *byte == b'=')
                .unwrap_or(line.len());
            let value = decode(line.get(end + 1..).unwrap_or_default());
            let value =
                value.ok_or_else(|| wrong("the value is neither hexadecimal nor base64"))?;
            record
                .attributes
                .push((OsString::from_vec(unescape(&line[..end])), value));
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn paragraphs_are_read() {
        let text =
            b"# file: a\\040b\nuser.x=\"1\"\nuser.a\\075b=0x00\nuser.empty\n\n# file: /c\nuser.y=0sAA==\n";
        let records = parse(text).expect("paragraphs");
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].path.to_str(), Some("a b"));
        let names: Vec<_> = records[0]
            .attributes
            .iter()
            .map(|(name, _)| name.to_str())
            .collect();
        assert_eq!(
            names,
            [Some("user.x"), Some("user.a=b"), Some("user.empty")]
        );
        assert_eq!(records[1].attributes[0].1, [0]);
        assert_eq!(parse(b"user.x=1\n").map(drop).unwrap_err().0, 1);
    }
}
