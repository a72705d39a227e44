//! `extern4 find`: searches a tree with the expressions of GNU `find`.
//!
//! The command line is GNU's: options, image paths, then an expression whose order matters. It is
//! parsed by hand into an [`expr::Expr`], bound to each volume's user names, and evaluated for each
//! entry of a walk. Attributes are read only for entries where a test asks for them.
//!
//! `args` calls [`run`]. A file that cannot be read is reported, and the search goes on. A wrong
//! expression is a usage error before any volume is opened.

mod action;
mod candidate;
mod eval;
mod exec;
mod expr;
mod links;
mod parse;
mod perm;
mod printf;

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;

use extern4::{DirEntry, FileType};

use crate::app::{App, Opened, Shown, Target, try_help};
use crate::exit_status::ExitStatus;
use crate::image_path::ImagePath;
use crate::text::ListTime;

use action::Outputs;
use candidate::Candidate;
use eval::Flow;
use links::{Follow, Link, is_loop, leads_to_directory};
use parse::Query;
pub(crate) use parse::starts_expression;

const EXPRESSION: &str = "\
Expressions, as in GNU find (N means exactly N, +N more and -N less):
  -name GLOB -iname GLOB -path GLOB -ipath GLOB -lname GLOB -ilname GLOB
  -regex REGEX -iregex REGEX -regextype SYNTAX
  -type bcdpfls[,...] -xtype bcdpfls[,...] -size N[cwbkMG] -empty -links N -inum N -samefile FILE
  -user NAME -group NAME -uid N -gid N -nouser -nogroup -perm MODE|-MODE|/MODE
  -readable -writable -executable (by the user of --as)
  -newer FILE -anewer FILE -cnewer FILE -newerXY FILE|TIME (X: aBcm, Y: aBcmt)
  -mtime N -mmin N -atime N -amin N -ctime N -cmin N
  -fstype TYPE -xattr NAME -true -false
  -print -print0 -printf FORMAT -ls -fprint FILE -fprint0 FILE -fprintf FILE FORMAT -fls FILE
  -exec COMMAND ; -exec COMMAND {} + -exec-in COMMAND ; -delete -prune -quit
  -maxdepth N -mindepth N -depth -extract (for the whole search)
  ( EXPR )  ! EXPR  -not EXPR  EXPR -a EXPR  EXPR -o EXPR  EXPR , EXPR
  -L, -H or -P before the paths: follow all links, those named as paths, or none

Paths are printed as IMAGE:/PATH. -print0 and {} write a name that would be a pattern with escapes, so that another
extern4 command takes each path for itself: extern4 find ... -print0 | xargs -0 extern4 chmod ... Into a pipe, a search
without -exec prints at its end, when the volume is closed. --full-paths is for lines: $(extern4 find --full-paths ...).
-path and -regex match the path in the volume, /PATH. Where they have a colon they also match the printed path,
IMAGE:/PATH: ! -path is true if neither matches.

In -exec, {} stands for IMAGE:/PATH. COMMAND is one of extern4's own, such as 'extern4 cat {}' or just 'cat {}', or
another program of the host. That cannot read IMAGE:/PATH: -exec-in gives it the contents on its standard input, and with
-extract, {} stands for a temporary copy of the file.

REGEX is for the whole path, by default in the syntax of Emacs: \\( \\| \\) and * + ? are operators, and ( | ) { } are
not. SYNTAX is emacs, posix-basic or posix-extended, or one of their other names.
FILE in a test is a path in the same volume, or IMAGE:/PATH in another; in -fprint it is a file of the host.";

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

/// Returns the words that an expression may have, each with the name of its first argument, if it
/// takes one.
pub(crate) fn expression_words() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let lines = EXPRESSION
        .lines()
        .filter_map(|line| line.strip_prefix("  "));
    lines.flat_map(|line| {
        let words = line.split_whitespace();
        let next = line.split_whitespace().skip(1).map(Some).chain([None]);
        words.zip(next).filter_map(|(word, next)| {
            let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let is_word = word.starts_with('-') && word.chars().all(is_lower);
            is_word.then(|| {
                (
                    word,
                    next.filter(|next| next.starts_with(char::is_alphabetic)),
                )
            })
        })
    })
}

/// A search below one image path.
struct Search<'a> {
    query: &'a Query,
    volume: Rc<Opened>,
    /// The image path to start from.
    start: ImagePath,
    /// The text before the path, where paths are printed as they are.
    prefix: Vec<u8>,
    shown: Shown,
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
    if let Some(name) = query.expr.unknown_subcommand(app) {
        usage(
            app,
            &format!("-exec: extern4 has no subcommand {}", name.display()),
        );
        return Ok(());
    }
    if query.writes() {
        query
            .image_paths
            .iter()
            .for_each(|image_path| app.write_to(&image_path.image));
    }
    // Commands print themselves, among what the search prints.
    let lists = !query.expr.runs_commands();
    let holds = lists && app.can_hold_output();
    let mut outputs = match Outputs::open(app.out(lists), &query.files, holds) {
        Ok(outputs) => outputs,
        Err((file, error)) => {
            app.fail_at(
                ExitStatus::Failed,
                file.display(),
                crate::app::host_reason(&error),
            );
            return Ok(());
        }
    };
    let searched = search(args, &query, &mut outputs, app);
    if outputs.are_held() {
        app.close_early();
    }
    let closed = outputs.close(app);
    searched.and(closed)
}

/// Searches below all image paths.
fn search(args: &Args, query: &Query, outputs: &mut Outputs, app: &mut App) -> io::Result<()> {
    let shown = app.shown().completely(query.full_paths);
    for image_path in &query.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
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
            start: image_path.clone(),
            prefix: app.shown().prefix(&image_path.image),
            shown,
            json: args.json || query.json,
            time: OnceCell::new(),
        };
        if search.run(&target, outputs, app)? == Flow::Quit {
            break;
        }
    }
    outputs.standard.flush()?;
    query.expr.finish(app)
}

/// Reports wrong usage as clap does: nothing has been searched yet.
fn usage(app: &mut App, message: &str) {
    app.fail(ExitStatus::Usage, message);
    if !app.in_script() {
        eprintln!("{}", try_help("find"));
    }
}

/// Where a walk starts, and how deep below the image path of the command line that is.
struct Start<'a> {
    path: &'a Path,
    depth: usize,
}

impl Search<'_> {
    /// Returns a path as it is printed where nothing is escaped.
    fn printed(&self, path: &Path) -> Vec<u8> {
        [&self.prefix, path.as_os_str().as_bytes()].concat()
    }

    fn run(&self, target: &Target, outputs: &mut Outputs, app: &mut App) -> io::Result<Flow> {
        self.walk(
            target,
            &Start {
                path: target.path(),
                depth: 0,
            },
            outputs,
            app,
        )
    }

    /// Returns whether the symbolic links at this depth are followed.
    fn follows(&self, depth: usize) -> bool {
        match self.query.follow {
            Follow::Never => false,
            Follow::Arguments => depth == 0,
            Follow::Always => true,
        }
    }

    /// Visits everything from `start` on. Where links are followed, the walk of a directory behind
    /// a link is one of its own.
    fn walk(
        &self,
        target: &Target,
        start: &Start<'_>,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<Flow> {
        let through_link =
            self.follows(start.depth) && leads_to_directory(target.session(), start.path);
        // A walk follows a link only where a slash says so.
        let mut walk = if through_link {
            target.session().walk(OsStr::from_bytes(
                &[start.path.as_os_str().as_bytes(), b"/"].concat(),
            ))
        } else {
            target.session().walk(start.path)
        };
        if self.json || self.query.expr.reads_attributes() {
            walk = walk.with_metadata();
        }
        // With -depth, the directories whose entries are being visited.
        let mut open: Vec<DirEntry> = Vec::new();
        while let Some(entry) = walk.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.report(target, &error, outputs, app)?;
                    continue;
                }
            };
            while let Some(left) = open.pop_if(|left| left.depth() >= entry.depth()) {
                if self.visit(&left, start, outputs, app)? == Flow::Quit {
                    return Ok(Flow::Quit);
                }
            }
            let depth = start.depth + entry.depth();
            let is_directory = entry
                .file_type()
                .is_ok_and(|kind| kind == FileType::Directory);
            if is_directory && depth >= self.query.max_depth {
                walk.skip_subtree();
            }
            if is_directory && self.query.depth_first {
                open.push(entry);
                continue;
            }
            let leads = self.link(target, &entry, start);
            if leads == Link::Loop {
                outputs.standard.flush()?;
                let message = "the link leads to a directory that it is in";
                app.fail_at(
                    ExitStatus::Failed,
                    self.volume.image_path(entry.path()),
                    message,
                );
                continue;
            }
            let below = leads == Link::Entered;
            if self.query.depth_first
                && below
                && self.walk_link(target, &entry, start, outputs, app)? == Flow::Quit
            {
                return Ok(Flow::Quit);
            }
            match self.visit(&entry, start, outputs, app)? {
                Flow::Quit => return Ok(Flow::Quit),
                Flow::Prune => walk.skip_subtree(),
                Flow::Descend if below && !self.query.depth_first => {
                    if self.walk_link(target, &entry, start, outputs, app)? == Flow::Quit {
                        return Ok(Flow::Quit);
                    }
                }
                Flow::Descend => {}
            }
        }
        while let Some(left) = open.pop() {
            if self.visit(&left, start, outputs, app)? == Flow::Quit {
                return Ok(Flow::Quit);
            }
        }
        Ok(Flow::Descend)
    }

    /// Returns what the search does with an entry as a symbolic link.
    fn link(&self, target: &Target, entry: &DirEntry, start: &Start<'_>) -> Link {
        let is_link = entry
            .file_type()
            .is_ok_and(|kind| kind == FileType::Symlink);
        let depth = start.depth + entry.depth();
        if !is_link
            || entry.depth() == 0
            || self.query.follow != Follow::Always
            || !leads_to_directory(target.session(), entry.path())
        {
            return Link::Left;
        }
        match (
            is_loop(target.session(), entry.path()),
            depth < self.query.max_depth,
        ) {
            (true, _) => Link::Loop,
            (false, true) => Link::Entered,
            (false, false) => Link::Left,
        }
    }

    fn walk_link(
        &self,
        target: &Target,
        entry: &DirEntry,
        start: &Start<'_>,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<Flow> {
        self.walk(
            target,
            &Start {
                path: entry.path(),
                depth: start.depth + entry.depth(),
            },
            outputs,
            app,
        )
    }

    /// Evaluates the expression on an entry, unless it is not deep enough, or the walk below a link
    /// starts with it.
    fn visit(
        &self,
        entry: &DirEntry,
        start: &Start<'_>,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<Flow> {
        let depth = start.depth + entry.depth();
        if depth < self.query.min_depth || entry.depth() == 0 && start.depth > 0 {
            return Ok(Flow::Descend);
        }
        let path = if entry.depth() == 0 {
            start.path
        } else {
            entry.path()
        };
        let candidate = Candidate::new(entry, path, depth, self.follows(depth), self);
        let mut flow = Flow::Descend;
        let mut act = |action: &action::Action| action.run(self, &candidate, outputs, app);
        eval::eval(&self.query.expr, &candidate, &mut flow, &mut act)?;
        if let Some(error) = candidate.take_error() {
            outputs.standard.flush()?;
            app.error(self.volume.image_path(path), &error);
        }
        Ok(flow)
    }

    /// Reports an error of reading, after the output that was found before it.
    fn report(
        &self,
        target: &Target,
        error: &extern4::Error,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<()> {
        outputs.standard.flush()?;
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
    target
        .volume
        .image_path(&std::path::Path::new("/").join(text))
}
