//! `extern4 find`: searches a tree with the expressions of GNU `find`.
//!
//! The command line is GNU's: options, image paths, then an expression whose order matters. It is
//! parsed by hand into an [`expr::Expr`], bound to each volume's user names, and evaluated for each
//! entry of a walk. Attributes are read only for entries where a test asks for them.

mod action;
mod eval;
mod expr;
mod parse;
mod perm;

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::rc::Rc;

use extern4::FileType;

use crate::app::{App, Opened, Shown, Target, try_help};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::output::{Out, flush, out};
use crate::text::ListTime;

use eval::{Candidate, Flow};
use parse::Query;
pub(crate) use parse::starts_expression;

const EXPRESSION: &str = "\
Expressions, as in GNU find (N means exactly N, +N more and -N less):
  -name GLOB -iname GLOB -path GLOB -ipath GLOB -lname GLOB -ilname GLOB -regex REGEX -iregex REGEX
  -type bcdpfls[,...] -size N[cwbkMG] -empty -links N -inum N -samefile FILE
  -user NAME -group NAME -uid N -gid N -nouser -nogroup -perm MODE|-MODE|/MODE
  -newer FILE -anewer FILE -cnewer FILE -mtime N -mmin N -atime N -amin N -ctime N -cmin N
  -xattr NAME -true -false
  -print -print0 -ls -prune -quit
  -maxdepth N -mindepth N (for the whole search)
  ( EXPR )  ! EXPR  -not EXPR  EXPR -a EXPR  EXPR -o EXPR  EXPR , EXPR

REGEX is for the whole path, in the syntax of Emacs: \\( \\| \\) and * + ? are operators, and ( | ) { } are not.
FILE is a path in the same volume, or IMAGE:/PATH in another.";

#[derive(clap::Args)]
#[command(override_usage = "extern4 find [OPTIONS] IMAGE:/PATH... [EXPRESSION]", after_help = EXPRESSION)]
pub(crate) struct Args {
    /// Write one JSON object a line for each file that -print would print
    #[arg(long)]
    json: bool,
    /// Directories to search, and what to search for
    #[arg(
        value_name = "IMAGE:/PATH... [EXPRESSION]",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// A search below one image path.
struct Search<'a> {
    query: &'a Query,
    volume: Rc<Opened>,
    prefix: Vec<u8>,
    terminal: bool,
    json: bool,
    time: OnceCell<ListTime>,
}

impl Args {
    /// Checks the expression.
    pub(crate) fn check(&self) -> Result<(), String> {
        parse::parse(&self.words, &ImagePath::parse).map(drop)
    }
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let query = match parse::parse(&args.words, &|text| app.image_path(text)) {
        Ok(query) => query,
        Err(error) => {
            usage(app, &error);
            return Ok(());
        }
    };
    let shown = Shown::new(&query.image_paths);
    let mut out = out();
    for image_path in &query.image_paths {
        let Some(target) = app.target(image_path) else { continue };
        let query = match query.bind(&target, app) {
            Ok(query) => query,
            Err(Some(error)) => {
                usage(app, &error);
                return Ok(());
            }
            Err(None) => continue,
        };
        let search = Search {
            query: &query,
            volume: Rc::clone(&target.volume),
            prefix: shown.prefix(&image_path.image),
            terminal: shown.terminal,
            json: args.json || query.json,
            time: OnceCell::new(),
        };
        if search.run(&target, &mut out, app)? == Flow::Quit {
            break;
        }
    }
    flush(&mut out)
}

/// Reports wrong usage as clap does: nothing has been searched yet.
fn usage(app: &mut App, message: &str) {
    app.fail(ExitStatus::Usage, message);
    if !app.in_script() {
        eprintln!("{}", try_help("find"));
    }
}

impl Search<'_> {
    fn run(&self, target: &Target, out: &mut Out, app: &mut App) -> io::Result<Flow> {
        let mut walk = target.session().walk(target.path());
        if self.json || self.query.expr.reads_attributes() {
            walk = walk.with_metadata();
        }
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.report(target, &error, out, app)?;
                    continue;
                }
            };
            let depth = entry.depth();
            let candidate = Candidate::new(&entry, &self.volume);
            let mut flow = Flow::Descend;
            if depth >= self.query.min_depth {
                flow = self.visit(&candidate, out)?;
                if let Some(error) = candidate.take_error() {
                    self.report(target, &error, out, app)?;
                }
            }
            let deepest = depth >= self.query.max_depth;
            match flow {
                Flow::Quit => return Ok(Flow::Quit),
                Flow::Prune => walk.skip_subtree(),
                Flow::Descend
                    if deepest && entry.file_type().is_ok_and(|kind| kind == FileType::Directory) =>
                {
                    walk.skip_subtree();
                }
                Flow::Descend => {}
            }
        }
        Ok(Flow::Descend)
    }

    fn visit(&self, candidate: &Candidate<'_>, out: &mut Out) -> io::Result<Flow> {
        let mut flow = Flow::Descend;
        eval::eval(&self.query.expr, candidate, &mut flow, &mut |action| action.run(self, candidate, out))?;
        Ok(flow)
    }

    /// Reports an error of reading, after the output that was found before it.
    fn report(
        &self,
        target: &Target,
        error: &extern4::Error,
        out: &mut Out,
        app: &mut App,
    ) -> io::Result<()> {
        out.flush()?;
        let path = error.path().unwrap_or(target.path());
        app.error(self.volume.image_path(path), error);
        Ok(())
    }
}

/// Returns the image path that `-newer` or a similar test names: a path of the searched volume
/// unless it names an image itself.
fn reference(text: &OsString, target: &Target) -> ImagePath {
    if ImagePath::is_one(text) {
        return ImagePath::parse(text);
    }
    target.volume.image_path(&std::path::Path::new("/").join(text))
}
