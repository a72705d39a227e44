//! `extern4 script`: runs many commands on one volume in one go.
//!
//! A line is a command as on the command line, with paths of the volume for image paths. All lines
//! are read before the first one runs, so a line that makes no sense changes nothing. All changes
//! become durable together, at the end. The first failure ends the script; the changes before it
//! stay.
//!
//! `args` calls [`run`]; `language` has the parser and the interpreter.

use std::io::{self, Write as _};
use std::path::PathBuf;

use crate::app::{App, host_reason};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::interruptible;
use crate::language::interpreter::{Interpreter, Step};
use crate::language::statement::{Parser, Statement};
use crate::language::variable;
use crate::language::words::statements;
use crate::progress::Unit;

const LINES: &str = "\
Lines are commands, as extern4 takes them, with their options. Paths are those of the volume; for cp and mv, host:PATH is a \
file of the host. Words are quoted as in a shell, and $NAME is a variable of the environment. In a path of the volume *, \
? and [...] match names, unless they are quoted or come from a variable. A word that starts with # \
begins a comment; a ';' ends a command, as a line does, unless it ends in a '\\'. cd DIRECTORY and lcd DIRECTORY set \
where relative paths of the volume and of the host start, and !COMMAND runs a command of the host. > FILE and >> FILE take \
the output of a command, < FILE is its standard input, and | COMMAND pipes the output to a command of the host, which \
takes the rest of the line. <12> is the file with that inode number. The commands between \
begin and commit are one transaction. The first line that fails ends the script; what came before it stays.";

#[derive(clap::Args)]
#[command(after_help = LINES)]
pub(crate) struct Args {
    /// The volume
    #[arg(value_name = "IMAGE", value_parser = ImagePath::parser())]
    image: ImagePath,
    /// The script ('-' for standard input)
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Show what the changes took: hits and misses of every cache, and what was journaled
    #[arg(long)]
    stats: bool,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let file = &args.file;
    let shown = if file.as_os_str() == "-" {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    };
    if args.image.path.as_os_str() != "/" {
        app.fail_at(
            ExitStatus::Usage,
            &args.image,
            "name the image alone: paths are in the script",
        );
        return Ok(());
    }
    let text = match interruptible::read(file, app.stop()) {
        Ok(text) => text,
        Err(error) => {
            app.fail_at(ExitStatus::Failed, &shown, host_reason(&error));
            return Ok(());
        }
    };
    app.stop_on_signals();
    app.begin_script(args.image.clone(), false);
    let steps = parse(&text, &shown, app);
    if app.status() != ExitStatus::Success {
        return Ok(());
    }
    let image = app.base().map_or(&args.image, |base| base).image.clone();
    if steps.iter().any(|step| step.statement.changes()) {
        app.write_to(&image);
    }
    if app.volume(&image).is_none() {
        return Ok(());
    }
    let task = app.begin_task(Unit::things("command", "commands", "done"), false);
    let mut interpreter = Interpreter::default();
    let all = steps.len();
    task.expect(all as u64);
    for step in steps {
        interpreter.run(step, app)?;
        if app.status() != ExitStatus::Success || app.is_stopped() {
            break;
        }
        task.advance(1);
    }
    app.script_line(String::new());
    app.report_stop(format_args!("{} of {all} commands done", task.done()));
    drop(task);
    if args.stats
        && let Some(opened) = app.volume(&image)
    {
        if let Err(error) = opened.volume.sync() {
            app.error(&image, &error);
        }
        io::stdout().write_all(crate::counters::text(&opened.volume.stats()).as_bytes())?;
    }
    Ok(())
}

/// Parses a script. Reports each statement that makes no sense.
fn parse(text: &[u8], shown: &str, app: &mut App) -> Vec<Step> {
    let found = statements(text, &variable);
    let Some(base) = app.base().cloned() else {
        return Vec::new();
    };
    let mut parser = Parser::new(base);
    let mut steps = Vec::new();
    let mut last = 0;
    for (line, words) in found {
        last = line;
        let parsed = words
            .map_err(|fault| fault.reason().to_owned())
            .and_then(|words| parser.parse(words));
        let parsed = parsed.and_then(|statement| match statement.plain() {
            Statement::Help(_) => Err("help is not for scripts".to_owned()),
            Statement::History(_) => Err("history is not for scripts".to_owned()),
            Statement::Exit => Err("exit is not for scripts".to_owned()),
            _ => Ok(statement),
        });
        match parsed {
            Ok(statement) => steps.push(Step {
                place: format!("{shown}:{line}: "),
                statement,
            }),
            Err(message) => app.fail(ExitStatus::Usage, format_args!("{shown}:{line}: {message}")),
        }
    }
    if parser.has_begun() {
        app.fail(
            ExitStatus::Usage,
            format_args!("{shown}:{last}: a transaction has begun, and nothing commits it"),
        );
    }
    steps
}
