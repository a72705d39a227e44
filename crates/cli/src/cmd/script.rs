//! `extern4 script`: runs many changes of one volume in one go.
//!
//! A line is a command as on the command line, with paths of the volume for image paths. All lines
//! are read before the first one runs, so a line that makes no sense changes nothing. All changes
//! become durable together, at the end. The first failure ends the script; the changes before it
//! stay.

mod words;

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::{
    chgrp, chmod, chown, cp, ln, mkdir, mkfifo, mknod, mv, rm, rmdir, setfacl, setfattr, touch, truncate,
};
use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::standard_input;

use words::words;

const LINES: &str = "\
Lines are commands: cp, mkdir, rm, rmdir, mv, ln, mknod, mkfifo, touch, truncate, chmod, chown, chgrp, setfacl and setfattr, with their options. \
Paths are those of the volume; for cp, host:PATH is a file of the host. Words are quoted as in a shell, and a word that \
starts with # begins a comment. The first line that fails ends the script; what came before it stays.";

#[derive(clap::Args)]
#[command(after_help = LINES)]
pub(crate) struct Args {
    /// The volume to change
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image: ImagePath,
    /// The script ('-' for standard input)
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Show what the changes took: hits and misses of every cache, and what was journaled
    #[arg(long)]
    stats: bool,
}

/// A parsed line of the script.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

macro_rules! commands {
    ($($variant:ident = $name:literal => $module:ident;)*) => {
        #[derive(Subcommand)]
        enum Command {
            $(#[command(name = $name)] $variant($module::Args),)*
        }

        impl Command {
            fn run(&self, app: &mut App) -> io::Result<()> {
                match self { $(Self::$variant(args) => $module::run(args, app),)* }
            }
        }
    };
}

commands! {
    Cp = "cp" => cp;
    Mkdir = "mkdir" => mkdir;
    Rm = "rm" => rm;
    Rmdir = "rmdir" => rmdir;
    Mknod = "mknod" => mknod;
    Mkfifo = "mkfifo" => mkfifo;
    Mv = "mv" => mv;
    Ln = "ln" => ln;
    Touch = "touch" => touch;
    Truncate = "truncate" => truncate;
    Chmod = "chmod" => chmod;
    Chown = "chown" => chown;
    Chgrp = "chgrp" => chgrp;
    Setfacl = "setfacl" => setfacl;
    Setfattr = "setfattr" => setfattr;
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let file = &args.file;
    let standard = file.as_os_str() == "-";
    let shown = if standard { "standard input".to_owned() } else { file.display().to_string() };
    if args.image.path.as_os_str() != "/" {
        app.fail_at(ExitStatus::Usage, &args.image, "name the image alone: paths are in the script");
        return Ok(());
    }
    let mut text = Vec::new();
    let read = if standard {
        standard_input::open().and_then(|mut input| input.read_to_end(&mut text)).map(drop)
    } else {
        std::fs::read(file).map(|read| text = read)
    };
    if let Err(error) = read {
        app.fail_at(ExitStatus::Failed, &shown, host_reason(&error));
        return Ok(());
    }
    let image = &args.image.image;
    app.begin_script(image);
    let (mut lines, mut grammar) = (Vec::new(), Line::command());
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        match parse(&mut grammar, line) {
            Ok(None) => {}
            Ok(Some(command)) => lines.push((index + 1, command)),
            Err(message) => app.fail(ExitStatus::Usage, format_args!("{shown}:{}: {message}", index + 1)),
        }
    }
    if app.status() != ExitStatus::Success {
        return Ok(());
    }
    app.write_to(image);
    if app.volume(image).is_none() {
        return Ok(());
    }
    for (number, command) in lines {
        app.script_line(format!("{shown}:{number}: "));
        command.run(app)?;
        if app.status() != ExitStatus::Success {
            break;
        }
    }
    app.script_line(String::new());
    if args.stats
        && let Some(opened) = app.volume(image)
    {
        if let Err(error) = opened.volume.sync() {
            app.error(image, &error);
        }
        io::stdout().write_all(crate::counters::text(&opened.volume.stats()).as_bytes())?;
    }
    Ok(())
}

/// Returns the command of a line, or `None` for an empty one. The grammar is that of [`Line`];
/// building it takes longer than reading a line.
fn parse(grammar: &mut clap::Command, line: &[u8]) -> Result<Option<Command>, String> {
    let words: Vec<OsString> = words(line)?;
    if words.is_empty() {
        return Ok(None);
    }
    let parsed = grammar.try_get_matches_from_mut(words).and_then(|found| Line::from_arg_matches(&found));
    let parsed = parsed.map_err(|error| match error.kind() {
        clap::error::ErrorKind::DisplayHelp => "help is not for scripts".to_owned(),
        // The first paragraph names the error; the rest is about the command line.
        _ => {
            let text = error.render().to_string();
            let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    })?;
    Ok(Some(parsed.command))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Command, Line};

    fn parse(line: &[u8]) -> Result<Option<Command>, String> {
        super::parse(&mut Line::command(), line)
    }

    #[test]
    fn lines_are_commands() {
        Line::command().debug_assert();
        assert!(parse(b"mkdir -p '/a b'").is_ok_and(|line| line.is_some()));
        assert!(parse(b"chmod -R u+rwX,go-w /a # everything").is_ok_and(|line| line.is_some()));
        assert!(parse(b"chmod -x /a").is_ok_and(|line| line.is_some()));
        assert!(parse(b"  # nothing").is_ok_and(|line| line.is_none()));
        assert!(parse(b"").is_ok_and(|line| line.is_none()));
        for bad in
            [&b"mkdir"[..], b"mkdir --nonsense /a", b"ls /", b"mkdir 'a", b"mkdir --help", b"chmod 888 /"]
        {
            let Err(message) = parse(bad) else { panic!("{}", bad.escape_ascii()) };
            assert!(!message.contains('\n') && !message.is_empty(), "{message}");
        }
    }
}
