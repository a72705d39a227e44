//! The words of a `find` command line.
//!
//! ```text
//! list  = or { "," or }
//! or    = and { ("-o" | "-or") and }
//! and   = not { ["-a" | "-and"] not }
//! not   = ("!" | "-not") not | "(" list ")" | test | action
//! ```

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use extern4::FileType;
use extern4_tree::Glob;
use regex::bytes::RegexBuilder;

use crate::app::{App, Target};
use crate::image_path::ImagePath;
use crate::posix_regex::{Syntax, translate};

use super::action::Action;
use super::expr::{Count, Expr, Reference, Test, Time, Unit, Who};
use super::perm::Perm;

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
    /// `--json` stood among the words.
    pub(super) json: bool,
}

/// Returns whether the expression starts with this word, behind the places to search.
pub(crate) fn starts_expression(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    (bytes.len() > 1 && bytes[0] == b'-') || matches!(bytes, b"(" | b")" | b"!" | b",")
}

/// Reads the words after the options; an error describes their fault.
pub(super) fn parse(words: &[OsString], image_path: &dyn Fn(&OsStr) -> ImagePath) -> Result<Query, String> {
    let places_end = words.iter().position(|word| starts_expression(word)).unwrap_or(words.len());
    let (image_paths, expression) = words.split_at(places_end);
    if image_paths.is_empty() {
        return Err("name a directory to search, such as disk.img:/".to_owned());
    }
    let image_paths = image_paths.iter().map(|word| image_path(word)).collect();
    let mut parser =
        Parser { words: expression, min_depth: 0, max_depth: usize::MAX, json: false, nesting: 0 };
    let mut expr = if expression.is_empty() { Expr::Test(Test::True) } else { parser.list()? };
    if let Some(word) = parser.words.first() {
        return Err(format!("{} is not expected here", word.display()));
    }
    if !expr.has_action() {
        expr = Expr::And(vec![expr, Expr::Action(Action::Print)]);
    }
    let Parser { min_depth, max_depth, json, .. } = parser;
    Ok(Query { image_paths, expr, min_depth, max_depth, json })
}

impl Query {
    /// Returns the query with names of users and files looked up in the searched volume. The error
    /// is a fault of the query. It is `None` if a file's attributes could not be read, which is
    /// already reported.
    pub(super) fn bind(&self, target: &Target, app: &mut App) -> Result<Self, Option<String>> {
        let expr = self.expr.try_map(&mut |test| bind(test, target, app))?;
        Ok(Self { expr, ..self.clone() })
    }
}

fn bind(test: &Test, target: &Target, app: &mut App) -> Result<Test, Option<String>> {
    let names = || target.volume.names();
    Ok(match test {
        Test::User(Who::Name(name)) => {
            let uid = names()
                .uid(name)
                .ok_or_else(|| format!("-user: {name} is not a user of {}", target.image_path.image))?;
            Test::User(Who::Id(uid))
        }
        Test::Group(Who::Name(name)) => {
            let gid = names()
                .gid(name)
                .ok_or_else(|| format!("-group: {name} is not a group of {}", target.image_path.image))?;
            Test::Group(Who::Id(gid))
        }
        Test::Newer { time, than: Reference::Name(name) } => {
            let (_, found) = look(name, target, app)?;
            Test::Newer { time: *time, than: Reference::Time(found.mtime()) }
        }
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
    min_depth: usize,
    max_depth: usize,
    json: bool,
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
            let ended =
                self.words.first().is_none_or(|word| matches!(word.as_bytes(), b")" | b"," | b"-o" | b"-or"));
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
        let Some((word, rest)) = self.words.split_first() else { return false };
        let found = wanted.iter().any(|wanted| word == *wanted);
        if found {
            self.words = rest;
        }
        found
    }

    fn operand(&mut self, of: &str) -> Result<&'a OsStr, String> {
        let (word, rest) = self.words.split_first().ok_or_else(|| format!("{of} needs an argument"))?;
        self.words = rest;
        Ok(word)
    }

    fn text(&mut self, of: &str) -> Result<&'a str, String> {
        let word = self.operand(of)?;
        word.to_str().ok_or_else(|| format!("{of}: {} is not text", word.display()))
    }

    fn count(&mut self, of: &str) -> Result<Count, String> {
        let text = self.text(of)?;
        count(text).ok_or_else(|| format!("{of}: {text} is not a number"))
    }

    fn depth(&mut self, of: &str) -> Result<usize, String> {
        let text = self.text(of)?;
        text.parse().map_err(|_| format!("{of}: {text} is not a number"))
    }

    fn glob(&mut self, of: &str, fold: bool) -> Result<Glob, String> {
        Ok(Glob::new(self.operand(of)?.as_bytes(), fold))
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let Some((word, rest)) = self.words.split_first() else {
            return Err("the expression ends too early".to_owned());
        };
        let Some(name) = word.to_str() else { return Err(format!("{} is not known", word.display())) };
        self.words = rest;
        match name {
            "-print" => Ok(Expr::Action(Action::Print)),
            "-print0" => Ok(Expr::Action(Action::Print0)),
            "-ls" => Ok(Expr::Action(Action::Ls)),
            "-prune" => Ok(Expr::Prune),
            "-quit" => Ok(Expr::Quit),
            _ => self.option_or_test(name),
        }
    }

    /// Parses an option or a test. Options apply to the whole search wherever they stand, and are
    /// true.
    fn option_or_test(&mut self, name: &str) -> Result<Expr, String> {
        match name {
            "-maxdepth" => self.max_depth = self.depth(name)?,
            "-mindepth" => self.min_depth = self.depth(name)?,
            "-xdev" | "-mount" | "-noleaf" => {}
            "--json" => self.json = true,
            "--as" => return Err("--as has to stand before the paths".to_owned()),
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
            "-path" | "-wholename" => Test::Path(self.glob(name, false)?),
            "-ipath" | "-iwholename" => Test::Path(self.glob(name, true)?),
            "-lname" => Test::LinkName(self.glob(name, false)?),
            "-ilname" => Test::LinkName(self.glob(name, true)?),
            "-regex" => self.regex(name, false)?,
            "-iregex" => self.regex(name, true)?,
            "-type" => Test::Type(types(self.text(name)?)?),
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
        let whole = translate(text, Syntax::Emacs).map(|inner| format!("^(?:{inner})$"));
        let whole = whole.map_err(|error| format!("{of}: {error}"))?;
        let regex = RegexBuilder::new(&whole).case_insensitive(fold).build();
        regex.map(Test::Regex).map_err(|_| format!("{of}: {text} is not a regular expression"))
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
            "-exec" | "-execdir" | "-ok" | "-okdir" | "-delete" => {
                return Err(format!("{name} is not there: files in a volume are not files of this system"));
            }
            _ => return Err(format!("{name} is not known")),
        };
        Ok(match unit {
            Some(unit) => Test::Age { time, count: self.count(name)?, unit },
            None => Test::Newer { time, than: Reference::Name(self.operand(name)?.to_owned()) },
        })
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
    let digits = if unit == 0 { text } else { &text[..text.len() - 1] };
    let count = count(digits).ok_or_else(|| format!("-size: {text} is not a size"))?;
    Ok(Test::Size { count, unit: if unit == 0 { 512 } else { unit } })
}

fn types(text: &str) -> Result<Vec<FileType>, String> {
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
    text.split(',').map(|part| letter(part).ok_or_else(|| format!("-type: {part} is not a type"))).collect()
}

fn who(text: &str) -> Who {
    text.parse().map_or_else(|_| Who::Name(text.to_owned()), Who::Id)
}

#[cfg(test)]
mod tests {
    use super::super::expr::{Count, Expr, Test};
    use super::{Query, count, parse, size};
    use std::ffi::OsString;

    fn query(line: &str) -> Result<Query, String> {
        parse(
            &line.split_whitespace().map(OsString::from).collect::<Vec<_>>(),
            &crate::image_path::ImagePath::parse,
        )
    }

    /// Returns the shape of an expression, with tests as `t` and actions as `p`.
    fn shape(expr: &Expr) -> String {
        let join =
            |parts: &[Expr], by: &str| format!("({})", parts.iter().map(shape).collect::<Vec<_>>().join(by));
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
            assert_eq!(query(line).map(|query| shape(&query.expr)).as_deref(), Ok(expected), "{line}");
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
