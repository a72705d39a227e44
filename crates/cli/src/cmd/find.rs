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

use extern4::{DirEntry, FileType, Walk, WalkEvent};

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

impl Search<'_> {
    /// Returns a path as it is printed where nothing is escaped.
    fn printed(&self, path: &Path) -> Vec<u8> {
        [&self.prefix, path.as_os_str().as_bytes()].concat()
    }

    /// Returns whether the symbolic links at this depth are followed.
    fn follows(&self, depth: usize) -> bool {
        match self.query.follow {
            Follow::Never => false,
            Follow::Arguments => depth == 0,
            Follow::Always => true,
        }
    }

    /// Visits everything from the image path on.
    fn run(&self, target: &Target, outputs: &mut Outputs, app: &mut App) -> io::Result<Flow> {
        let top = target.path();
        // A walk follows a link at its start only where a slash says so.
        let mut walk = if self.follows(0) && leads_to_directory(target.session(), top) {
            target.session().walk(OsStr::from_bytes(
                &[top.as_os_str().as_bytes(), b"/"].concat(),
            ))
        } else {
            target.session().walk(top)
        };
        if self.json || self.query.expr.reads_attributes() {
            walk = walk.with_metadata();
        }
        while let Some(event) = walk.next_event() {
            let flow = match event {
                Ok(WalkEvent::Enter(entry)) => {
                    self.directory(target, &entry, &mut walk, outputs, app)?
                }
                Ok(WalkEvent::File(entry)) => self.file(target, &entry, &mut walk, outputs, app)?,
                Ok(WalkEvent::Leave(entry)) if self.query.depth_first => {
                    self.visit(target, &entry, outputs, app)?
                }
                Ok(WalkEvent::Leave(_)) => Flow::Descend,
                Err(error) => {
                    self.report(target, &error, outputs, app)?;
                    Flow::Descend
                }
            };
            match flow {
                Flow::Quit => return Ok(Flow::Quit),
                Flow::Prune => walk.skip_subtree(),
                Flow::Descend => {}
            }
        }
        Ok(Flow::Descend)
    }

    /// Visits a directory before its entries, unless it is visited after them.
    fn directory(
        &self,
        target: &Target,
        entry: &DirEntry,
        walk: &mut Walk,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<Flow> {
        let is_deepest = entry.depth() >= self.query.max_depth;
        if is_deepest {
            walk.skip_subtree();
        }
        if self.query.depth_first && !is_deepest {
            return Ok(Flow::Descend);
        }
        self.visit(target, entry, outputs, app)
    }

    /// Visits a file that is not a directory, and enters a link that is followed.
    fn file(
        &self,
        target: &Target,
        entry: &DirEntry,
        walk: &mut Walk,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<Flow> {
        let link = self.link(target, entry);
        if link == Link::Loop {
            outputs.standard.flush()?;
            let message = "the link leads to a directory that it is in";
            app.fail_at(
                ExitStatus::Failed,
                self.volume.image_path(entry.path()),
                message,
            );
            return Ok(Flow::Descend);
        }
        let is_visited_later = link == Link::Entered && self.query.depth_first;
        let flow = if is_visited_later {
            Flow::Descend
        } else {
            self.visit(target, entry, outputs, app)?
        };
        if link == Link::Entered
            && flow == Flow::Descend
            && let Err(error) = walk.enter()
        {
            self.report(target, &error, outputs, app)?;
            if is_visited_later {
                return self.visit(target, entry, outputs, app);
            }
        }
        Ok(flow)
    }

    /// Returns what the search does with an entry as a symbolic link.
    fn link(&self, target: &Target, entry: &DirEntry) -> Link {
        let is_link = entry
            .file_type()
            .is_ok_and(|kind| kind == FileType::Symlink);
        if !is_link
            || entry.depth() == 0
            || self.query.follow != Follow::Always
            || !leads_to_directory(target.session(), entry.path())
        {
            return Link::Left;
        }
        match (
            is_loop(target.session(), entry.path()),
            entry.depth() < self.query.max_depth,
        ) {
            (true, _) => Link::Loop,
            (false, true) => Link::Entered,
            (false, false) => Link::Left,
        }
    }

    /// Evaluates the expression on an entry, unless it is not deep enough.
    fn visit(
        &self,
        target: &Target,
        entry: &DirEntry,
        outputs: &mut Outputs,
        app: &mut App,
    ) -> io::Result<Flow> {
        let depth = entry.depth();
        if depth < self.query.min_depth {
            return Ok(Flow::Descend);
        }
        let path = if depth == 0 {
            target.path()
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
