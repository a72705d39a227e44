//! The words of a `find` command line.
//!
//! ```text
//! list  = or { "," or }
//! or    = and { ("-o" | "-or") and }
//! and   = not { ["-a" | "-and"] not }
//! not   = ("!" | "-not") not | "(" list ")" | test | action
//! ```
//!
//! `find` calls it before it opens a volume. A command line that GNU `find` would refuse is
//! refused, with the word that is wrong.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::rc::Rc;

use extern4::Glob;
use extern4::{Access, FileType};
use regex::bytes::RegexBuilder;

use crate::app::{App, Target};
use crate::image_path::ImagePath;
use crate::posix_regex::{Syntax, without_references};

use super::action::{Action, Output};
use super::candidate::PathForm;
use super::exec::{Exec, How};
use super::expr::{Count, Expr, Reference, Test, Time, Unit, Who};
use super::links::Follow;
use super::perm::Perm;
use super::printf::Format;

/// The deepest nesting of parentheses and negations.
const MAX_NESTING: usize = 200;

/// A whole command line.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// Where to search.
    pub(super) image_paths: Vec<ImagePath>,
    /// The expression to search for.
    pub(super) expr: Expr,
    /// Entries above this depth are passed over.
    pub(super) min_depth: usize,
    /// Entries below this depth are not visited.
    pub(super) max_depth: usize,
    /// A directory is visited after its entries.
    pub(super) depth_first: bool,
    /// The symbolic links that are followed.
    pub(super) follow: Follow,
    /// The files of the host that actions write.
    pub(super) files: Vec<PathBuf>,
    /// `--json` stood among the words.
    pub(super) json: bool,
    /// `--full-paths` stood among the words.
    pub(super) full_paths: bool,
}

/// Returns whether the expression starts with this word, behind the places to search.
pub(crate) fn starts_expression(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    (bytes.len() > 1 && bytes[0] == b'-') || matches!(bytes, b"(" | b")" | b"!" | b",")
}

/// Reads the words after the options; an error describes their fault.
pub(super) fn parse(
    words: &[OsString],
    image_path: &dyn Fn(&OsStr) -> ImagePath,
) -> Result<Query, String> {
    let (follow, words) = links(words);
    let places_end = words
        .iter()
        .position(|word| starts_expression(word))
        .unwrap_or(words.len());
    let (image_paths, expression) = words.split_at(places_end);
    if image_paths.is_empty() {
        return Err("name a directory to search, such as disk.img:/".to_owned());
    }
    let image_paths = image_paths.iter().map(|word| image_path(word)).collect();
    let mut parser = Parser {
        words: expression,
        query: Query::new(image_paths, follow),
        syntax: Syntax::Emacs,
        extracts: false,
        nesting: 0,
    };
    parser.extracts = expression
        .iter()
        .any(|word| word == "-extract" || word == "--extract");
    let mut expr = if expression.is_empty() {
        Expr::Test(Test::True)
    } else {
        parser.list()?
    };
    if let Some(word) = parser.words.first() {
        return Err(format!("{} is not expected here", word.display()));
    }
    if !expr.has_action() {
        expr = Expr::And(vec![
            expr,
            Expr::Action(Action::Print {
                end: b'\n',
                to: Output::Standard,
            }),
        ]);
    }
    Ok(Query {
        expr,
        ..parser.query
    })
}

/// Reads the options about symbolic links that stand before the paths.
fn links(mut words: &[OsString]) -> (Follow, &[OsString]) {
    let mut follow = Follow::Never;
    while let Some((word, rest)) = words.split_first() {
        follow = match word.to_str() {
            Some("-P") => Follow::Never,
            Some("-H") => Follow::Arguments,
            Some("-L") => Follow::Always,
            _ => break,
        };
        words = rest;
    }
    (follow, words)
}

impl Query {
    fn new(image_paths: Vec<ImagePath>, follow: Follow) -> Self {
        Self {
            image_paths,
            expr: Expr::Test(Test::True),
            min_depth: 0,
            max_depth: usize::MAX,
            depth_first: false,
            follow,
            files: Vec::new(),
            json: false,
            full_paths: false,
        }
    }

    /// Returns whether the search may change the volumes.
    pub(super) fn writes(&self) -> bool {
        self.expr.writes()
    }

    /// Returns the query with names of users and files looked up in the searched volume. The error
    /// is a fault of the query. It is `None` if a file's attributes could not be read, which is
    /// already reported.
    pub(super) fn bind(&self, target: &Target, app: &mut App) -> Result<Self, Option<String>> {
        let expr = self.expr.try_map(&mut |test| bind(test, target, app))?;
        Ok(Self {
            expr,
            ..self.clone()
        })
    }
}

fn bind(test: &Test, target: &Target, app: &mut App) -> Result<Test, Option<String>> {
    let names = || target.volume.names();
    Ok(match test {
        Test::User(Who::Name(name)) => {
            let uid = names().uid(name).ok_or_else(|| {
                format!("-user: {name} is not a user of {}", target.image_path.image)
            })?;
            Test::User(Who::Id(uid))
        }
        Test::Group(Who::Name(name)) => {
            let gid = names().gid(name).ok_or_else(|| {
                format!(
                    "-group: {name} is not a group of {}",
                    target.image_path.image
                )
            })?;
            Test::Group(Who::Id(gid))
        }
        Test::Newer {
            time,
            than: Reference::Name(name),
            of,
        } => {
            let (_, found) = look(name, target, app)?;
            let than = match of {
                Time::Access => found.atime(),
                Time::Modify => found.mtime(),
                Time::Change => found.ctime(),
                Time::Birth => found
                    .btime()
                    .ok_or_else(|| format!("{} has no birth time", name.display()))?,
            };
            Test::Newer {
                time: *time,
                than: Reference::Time(than),
                of: *of,
            }
        }
        Test::FsType(name) if *name == target.volume.type_name() => Test::True,
        Test::FsType(_) => Test::False,
        Test::SameFile(Reference::Name(name)) => {
            let (here, found) = look(name, target, app)?;
            Test::SameFile(Reference::Inode(here.then(|| found.ino())))
        }
        test => test.clone(),
    })
}

/// Returns the attributes of a file that a test names, and whether it is in the searched volume.
fn look(
    name: &OsString,
    target: &Target,
    app: &mut App,
) -> Result<(bool, extern4::Metadata), Option<String>> {
    let image_path = super::reference(name, target);
    let file = app.target(&image_path).ok_or(None)?;
    match file.session().symlink_metadata(file.path()) {
        Ok(metadata) => Ok((file.image_path.image == target.image_path.image, metadata)),
        Err(error) => {
            app.error(&image_path, &error);
            Err(None)
        }
    }
}

struct Parser<'a> {
    words: &'a [OsString],
    /// The query without its expression.
    query: Query,
    /// The syntax of the regular expressions that follow.
    syntax: Syntax,
    /// Whether programs get copies of files.
    extracts: bool,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn list(&mut self) -> Result<Expr, String> {
        let mut parts = vec![self.or()?];
        while self.take(&[","]) {
            parts.push(self.or()?);
        }
        Ok(one_or(parts, Expr::List))
    }

    fn or(&mut self) -> Result<Expr, String> {
        let mut parts = vec![self.and()?];
        while self.take(&["-o", "-or"]) {
            parts.push(self.and()?);
        }
        Ok(one_or(parts, Expr::Or))
    }

    fn and(&mut self) -> Result<Expr, String> {
        let mut parts = vec![self.not()?];
        loop {
            let explicit = self.take(&["-a", "-and"]);
            let ended = self
                .words
                .first()
                .is_none_or(|word| matches!(word.as_bytes(), b")" | b"," | b"-o" | b"-or"));
            if ended && !explicit {
                return Ok(one_or(parts, Expr::And));
            }
            parts.push(self.not()?);
        }
    }

    fn not(&mut self) -> Result<Expr, String> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err("the expression is nested too deep".to_owned());
        }
        let expr = if self.take(&["!", "-not"]) {
            Expr::Not(Box::new(self.not()?))
        } else if self.take(&["("]) {
            let inner = self.list()?;
            if !self.take(&[")"]) {
                return Err("a ')' is missing".to_owned());
            }
            inner
        } else {
            self.primary()?
        };
        self.nesting -= 1;
        Ok(expr)
    }

    /// Takes the next word if it is one of these.
    fn take(&mut self, wanted: &[&str]) -> bool {
        let Some((word, rest)) = self.words.split_first() else {
            return false;
        };
        let found = wanted.iter().any(|wanted| word == *wanted);
        if found {
            self.words = rest;
        }
        found
    }

    fn operand(&mut self, of: &str) -> Result<&'a OsStr, String> {
        let (word, rest) = self
            .words
            .split_first()
            .ok_or_else(|| format!("{of} needs an argument"))?;
        self.words = rest;
        Ok(word)
    }

    fn text(&mut self, of: &str) -> Result<&'a str, String> {
        let word = self.operand(of)?;
        word.to_str()
            .ok_or_else(|| format!("{of}: {} is not text", word.display()))
    }

    fn count(&mut self, of: &str) -> Result<Count, String> {
        let text = self.text(of)?;
        count(text).ok_or_else(|| format!("{of}: {text} is not a number"))
    }

    fn depth(&mut self, of: &str) -> Result<usize, String> {
        let text = self.text(of)?;
        text.parse()
            .map_err(|_| format!("{of}: {text} is not a number"))
    }

    fn glob(&mut self, of: &str, fold: bool) -> Result<Glob, String> {
        Ok(Glob::new(self.operand(of)?.as_bytes(), fold))
    }

    fn path(&mut self, of: &str, fold: bool) -> Result<Test, String> {
        let pattern = self.operand(of)?.as_bytes();
        Ok(Test::Path(Glob::new(pattern, fold), PathForm::of(pattern)))
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let Some((word, rest)) = self.words.split_first() else {
            return Err("the expression ends too early".to_owned());
        };
        let Some(name) = word.to_str() else {
            return Err(format!("{} is not known", word.display()));
        };
        self.words = rest;
        match name {
            "-prune" => Ok(Expr::Prune),
            "-quit" => Ok(Expr::Quit),
            _ => match self.action(name)? {
                Some(action) => Ok(Expr::Action(action)),
                None => self.option_or_test(name),
            },
        }
    }

    fn action(&mut self, name: &str) -> Result<Option<Action>, String> {
        let standard = Output::Standard;
        Ok(Some(match name {
            "-print" => Action::Print {
                end: b'\n',
                to: standard,
            },
            "-print0" => Action::Print {
                end: 0,
                to: standard,
            },
            "-ls" => Action::Ls(standard),
            "-printf" => Action::Printf(Rc::new(Format::parse(self.text(name)?)?), standard),
            "-fprint" => Action::Print {
                end: b'\n',
                to: self.file(name)?,
            },
            "-fprint0" => Action::Print {
                end: 0,
                to: self.file(name)?,
            },
            "-fls" => Action::Ls(self.file(name)?),
            "-fprintf" => {
                let to = self.file(name)?;
                Action::Printf(Rc::new(Format::parse(self.text(name)?)?), to)
            }
            "-delete" => {
                // A directory has to be empty first.
                self.query.depth_first = true;
                Action::Delete
            }
            "-exec" | "-exec-in" => Action::Exec(Rc::new(self.exec(name)?)),
            _ => return Ok(None),
        }))
    }

    /// Reads the name of a file to write.
    fn file(&mut self, of: &str) -> Result<Output, String> {
        let path = PathBuf::from(self.operand(of)?);
        let known = self.query.files.iter().position(|file| *file == path);
        Ok(Output::File(known.unwrap_or_else(|| {
            self.query.files.push(path);
            self.query.files.len() - 1
        })))
    }

    /// Reads the command of `-exec` up to its `;`, or to `{} +`.
    fn exec(&mut self, name: &str) -> Result<Exec, String> {
        let is_end = |at: &usize| {
            let is_batch = *at > 0 && self.words[*at] == "+" && self.words[*at - 1] == "{}";
            self.words[*at] == ";" || is_batch
        };
        let end = (0..self.words.len())
            .find(is_end)
            .ok_or_else(|| format!("{name} lacks its ';'"))?;
        let is_batch = self.words[end] == "+";
        let how = match (name, is_batch) {
            ("-exec-in", true) => {
                return Err("-exec-in takes one file at a time: end it with ';'".to_owned());
            }
            (_, true) if self.extracts => {
                return Err("-extract takes one file at a time: end -exec with ';'".to_owned());
            }
            ("-exec-in", false) => How::Input,
            (_, true) => How::Batch,
            (_, false) if self.extracts => How::Copy,
            (_, false) => How::Each,
        };
        let words = &self.words[..end - usize::from(is_batch)];
        self.words = &self.words[end + 1..];
        Exec::new(words, how)
    }

    /// Parses an option or a test. Options apply to the whole search wherever they stand, and are
    /// true.
    fn option_or_test(&mut self, name: &str) -> Result<Expr, String> {
        match name {
            "-maxdepth" => self.query.max_depth = self.depth(name)?,
            "-mindepth" => self.query.min_depth = self.depth(name)?,
            "-depth" | "-d" => self.query.depth_first = true,
            "-follow" => self.query.follow = Follow::Always,
            "-regextype" => self.syntax = syntax(self.text(name)?)?,
            "-xdev"
            | "-mount"
            | "-noleaf"
            | "-warn"
            | "-nowarn"
            | "-ignore_readdir_race"
            | "-noignore_readdir_race"
            | "-extract"
            | "--extract" => {}
            "--json" => self.query.json = true,
            "--full-paths" => self.query.full_paths = true,
            "--as" | "--journal" | "--superblock" | "--wait" => {
                return Err(format!("{name} has to stand before the paths"));
            }
            _ => return Ok(Expr::Test(self.test(name)?)),
        }
        Ok(Expr::Test(Test::True))
    }

    fn test(&mut self, name: &str) -> Result<Test, String> {
        Ok(match name {
            "-true" => Test::True,
            "-false" => Test::False,
            "-name" => Test::Name(self.glob(name, false)?),
            "-iname" => Test::Name(self.glob(name, true)?),
            "-path" | "-wholename" => self.path(name, false)?,
            "-ipath" | "-iwholename" => self.path(name, true)?,
            "-lname" => Test::LinkName(self.glob(name, false)?),
            "-ilname" => Test::LinkName(self.glob(name, true)?),
            "-regex" => self.regex(name, false)?,
            "-iregex" => self.regex(name, true)?,
            "-type" => Test::Type(types(name, self.text(name)?)?),
            "-xtype" => Test::OtherType(types(name, self.text(name)?)?),
            "-readable" => Test::May(Access::READ),
            "-writable" => Test::May(Access::WRITE),
            "-executable" => Test::May(Access::EXEC),
            "-fstype" => Test::FsType(self.text(name)?.to_owned()),
            "-size" => size(self.text(name)?)?,
            "-empty" => Test::Empty,
            "-links" => Test::Links(self.count(name)?),
            "-inum" => Test::Inode(self.count(name)?),
            "-user" => Test::User(who(self.text(name)?)),
            "-group" => Test::Group(who(self.text(name)?)),
            "-uid" => Test::Uid(self.count(name)?),
            "-gid" => Test::Gid(self.count(name)?),
            "-nouser" => Test::NoUser,
            "-nogroup" => Test::NoGroup,
            "-perm" => {
                let text = self.text(name)?;
                Test::Perm(Perm::parse(text).ok_or_else(|| format!("-perm: {text} is not a mode"))?)
            }
            "-xattr" => Test::Xattr(self.operand(name)?.to_owned()),
            "-samefile" => Test::SameFile(Reference::Name(self.operand(name)?.to_owned())),
            _ => return self.time(name),
        })
    }

    fn regex(&mut self, of: &str, fold: bool) -> Result<Test, String> {
        let text = self.text(of)?;
        let dot_matches_all = self.syntax != Syntax::Emacs;
        let inner =
            without_references(text, self.syntax).map_err(|error| format!("{of}: {error}"))?;
        let whole = format!("^(?:{inner})$");
        let regex = RegexBuilder::new(&whole)
            .case_insensitive(fold)
            .dot_matches_new_line(dot_matches_all)
            .build();
        regex
            .map(|regex| Test::Regex(regex, PathForm::of(text.as_bytes())))
            .map_err(|_| format!("{of}: {text} is not a regular expression"))
    }

    fn time(&mut self, name: &str) -> Result<Test, String> {
        let (time, unit) = match name {
            "-newer" => (Time::Modify, None),
            "-anewer" => (Time::Access, None),
            "-cnewer" => (Time::Change, None),
            "-mtime" => (Time::Modify, Some(Unit::Days)),
            "-atime" => (Time::Access, Some(Unit::Days)),
            "-ctime" => (Time::Change, Some(Unit::Days)),
            "-mmin" => (Time::Modify, Some(Unit::Minutes)),
            "-amin" => (Time::Access, Some(Unit::Minutes)),
            "-cmin" => (Time::Change, Some(Unit::Minutes)),
            _ => match name.strip_prefix("-newer") {
                Some(letters) if !letters.is_empty() => return self.newer(name, letters),
                _ => return Err(unknown(name)),
            },
        };
        Ok(match unit {
            Some(unit) => Test::Age {
                time,
                count: self.count(name)?,
                unit,
            },
            None => {
                let than = Reference::Name(self.operand(name)?.to_owned());
                Test::Newer {
                    time,
                    than,
                    of: Time::Modify,
                }
            }
        })
    }

    /// Reads `-newerXY`.
    fn newer(&mut self, name: &str, letters: &str) -> Result<Test, String> {
        let time = |letter: char| match letter {
            'a' => Some(Time::Access),
            'B' => Some(Time::Birth),
            'c' => Some(Time::Change),
            'm' => Some(Time::Modify),
            _ => None,
        };
        let mut letters = letters.chars();
        let of = letters.next().and_then(time);
        let than = letters.next();
        let (Some(of), Some(than), None) = (of, than, letters.next()) else {
            return Err(unknown(name));
        };
        if than == 't' {
            let text = self.text(name)?;
            let than = super::super::touch::date(text)
                .map_err(|error| format!("{name}: {text}: {error}"))?;
            return Ok(Test::Newer {
                time: of,
                than: Reference::Time(than),
                of: Time::Modify,
            });
        }
        let than = time(than).ok_or_else(|| unknown(name))?;
        Ok(Test::Newer {
            time: of,
            than: Reference::Name(self.operand(name)?.to_owned()),
            of: than,
        })
    }
}

/// Returns why a word is no part of an expression.
fn unknown(name: &str) -> String {
    let reason = match name {
        "-execdir" | "-okdir" => "a directory in a volume is no working directory of the host",
        "-ok" => "a search asks no questions; look at its result, then use -exec",
        "-daystart" => "ages count from now; -newermt takes a time of day",
        "-used" => "times of access are rarely kept; use -atime",
        "-context" => "use -exec extern4 getfattr -n security.selinux",
        "-files0-from" => "use xargs -0",
        "--version" | "-version" => "extern4 --version shows the version",
        "-help" => "extern4 find --help shows the help",
        "-D" | "-O" | "-O1" | "-O2" | "-O3" => "there are no levels of optimisation",
        _ => return format!("{name} is not known"),
    };
    format!("{name} is not there: {reason}")
}

/// Returns the syntax that `-regextype` names.
fn syntax(text: &str) -> Result<Syntax, String> {
    match text {
        "emacs" | "findutils-default" => Ok(Syntax::Emacs),
        "posix-basic" | "grep" | "ed" | "sed" => Ok(Syntax::Basic),
        "posix-extended" | "egrep" | "posix-egrep" => Ok(Syntax::Extended),
        _ => Err(format!(
            "-regextype: {text} is not there; use emacs, posix-basic or posix-extended"
        )),
    }
}

fn one_or(mut parts: Vec<Expr>, many: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    match parts.len() {
        1 => parts.remove(0),
        _ => many(parts),
    }
}

fn count(text: &str) -> Option<Count> {
    let (kind, digits): (fn(u64) -> Count, _) = match text.as_bytes().first()? {
        b'+' => (Count::More, &text[1..]),
        b'-' => (Count::Less, &text[1..]),
        _ => (Count::Exactly, text),
    };
    let valid = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| valid).map(kind)
}

fn size(text: &str) -> Result<Test, String> {
    let unit = match text.as_bytes().last() {
        Some(b'c') => 1,
        Some(b'w') => 2,
        Some(b'b') => 512,
        Some(b'k') => 1 << 10,
        Some(b'M') => 1 << 20,
        Some(b'G') => 1 << 30,
        _ => 0,
    };
    let digits = if unit == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    let count = count(digits).ok_or_else(|| format!("-size: {text} is not a size"))?;
    Ok(Test::Size {
        count,
        unit: if unit == 0 { 512 } else { unit },
    })
}

fn types(of: &str, text: &str) -> Result<Vec<FileType>, String> {
    let letter = |letter: &str| {
        Some(match letter {
            "f" => FileType::Regular,
            "d" => FileType::Directory,
            "l" => FileType::Symlink,
            "c" => FileType::CharDevice,
            "b" => FileType::BlockDevice,
            "p" => FileType::Fifo,
            "s" => FileType::Socket,
            _ => return None,
        })
    };
    text.split(',')
        .map(|part| letter(part).ok_or_else(|| format!("{of}: {part} is not a type")))
        .collect()
}

fn who(text: &str) -> Who {
    text.parse()
        .map_or_else(|_| Who::Name(text.to_owned()), Who::Id)
}

#[cfg(test)]
mod tests {
    use super::super::expr::{Count, Expr, Test};
    use super::{Query, count, parse, size};
    use std::ffi::OsString;

    fn query(line: &str) -> Result<Query, String> {
        parse(
            &line
                .split_whitespace()
                .map(OsString::from)
                .collect::<Vec<_>>(),
            &crate::image_path::ImagePath::parse,
        )
    }

    /// Returns the shape of an expression, with tests as `t` and actions as `p`.
    fn shape(expr: &Expr) -> String {
        let join = |parts: &[Expr], by: &str| {
            format!("({})", parts.iter().map(shape).collect::<Vec<_>>().join(by))
        };
        match expr {
            Expr::And(parts) => join(parts, "&"),
            Expr::Or(parts) => join(parts, "|"),
            Expr::List(parts) => join(parts, ","),
            Expr::Not(part) => format!("!{}", shape(part)),
            Expr::Test(Test::True) => "1".to_owned(),
            Expr::Test(Test::False) => "0".to_owned(),
            Expr::Test(_) => "t".to_owned(),
            Expr::Action(_) => "p".to_owned(),
            Expr::Prune => "prune".to_owned(),
            Expr::Quit => "quit".to_owned(),
        }
    }

    #[test]
    fn operators_bind_as_in_find() {
        let check = |line: &str, expected: &str| {
            assert_eq!(
                query(line).map(|query| shape(&query.expr)).as_deref(),
                Ok(expected),
                "{line}"
            );
        };
        check("a.img", "(1&p)");
        check("a.img b.img:/x -empty", "(t&p)");
        check("a.img -true -o -false -a -true", "((1|(0&1))&p)");
        check("a.img ( -true -o -false ) -true", "(((1|0)&1)&p)");
        check("a.img ! -true -false", "((!1&0)&p)");
        check("a.img ! ! -true", "(!!1&p)");
        check("a.img -name x -prune -o -print", "((t&prune)|p)");
        check("a.img -true , -print", "(1,p)");
        check("a.img -quit", "(quit&p)");
        check("a.img -maxdepth 1 -print0", "(1&p)");
    }

    #[test]
    fn nonsense_is_refused() {
        let deep = format!("a.img {} -true", "! ".repeat(300));
        for line in [
            "-name x",
            "a.img -name",
            "a.img )",
            "a.img ( -true",
            "a.img -o",
            "a.img -true -o",
            "a.img -type x",
            "a.img -size k",
            "a.img -perm 9",
            "a.img -bogus",
            "a.img -exec ls",
            "a.img -exec",
            "a.img -exec ;",
            "a.img -exec extern4 ;",
            "a.img -exec-in cat {} +",
            "a.img -extract -exec cat {} +",
            "a.img -newerxy b",
            "a.img -newermt nonsense",
            "a.img -regextype perl",
            "a.img -printf %Z",
            "a.img -okdir ls ;",
            "a.img -true b.img",
            "a.img -true -a",
            "a.img -maxdepth -1",
            &deep,
            "a.img ( )",
            "a.img !",
        ] {
            assert!(query(line).is_err(), "{line}");
        }
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(count("5"), Some(Count::Exactly(5)));
        assert_eq!(count("+5"), Some(Count::More(5)));
        assert_eq!(count("-5"), Some(Count::Less(5)));
        for bad in ["", "+", "-", "x", "+-5", "1.5", "5k"] {
            assert_eq!(count(bad), None, "{bad}");
        }
        let check = |text, expected, expected_unit| match size(text) {
            Ok(Test::Size { count, unit }) => assert_eq!((count, unit), (expected, expected_unit)),
            other => panic!("{text}: {other:?}"),
        };
        check("1", Count::Exactly(1), 512);
        check("+10k", Count::More(10), 1024);
        check("-3c", Count::Less(3), 1);
    }
}
