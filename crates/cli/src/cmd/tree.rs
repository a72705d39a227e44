//! `extern4 tree`: shows a directory with everything below it, as tree(1) does.
//!
//! `args` calls [`run`]. A directory that cannot be read is reported, and the tree goes on. Names
//! are escaped unless `-N` asks for others.

mod args;
mod document;
mod entry;
mod filter;
mod lines;
mod report;
mod walk;
mod whole;

use std::io::{self, Write as _};

use crate::app::{App, Opened};
use crate::json;
use crate::output::Out;

pub(crate) use args::Args;
use args::Form;
use document::Document;
use entry::Item;
use lines::Lines;
use report::Report;
use walk::Walk;

/// The writer of a form of output.
enum Writer<'a> {
    Lines(Lines<'a>),
    Document(Document<'a>),
    /// An object a line.
    Objects,
}

/// The output of a run.
struct Printer<'a> {
    args: &'a Args,
    out: Out,
    writer: Writer<'a>,
    report: Report,
}

pub(crate) fn run(args: &Args, app: &mut App) -> io::Result<()> {
    let shown = app.shown_for(&args.image_paths);
    let writer = match args.form() {
        Form::Lines => Writer::Lines(Lines::new(args, shown)),
        Form::Json | Form::Xml => Writer::Document(Document::new(args, shown)),
        Form::Objects => Writer::Objects,
    };
    let mut printer = Printer {
        args,
        out: app.out(shown.is_complete()),
        writer,
        report: Report::default(),
    };
    if let Writer::Document(document) = &mut printer.writer {
        document.begin(&mut printer.out)?;
    }
    for image_path in &args.image_paths {
        let Some(target) = app.target(image_path) else {
            continue;
        };
        let mut walk = Walk::new(args, &target.volume);
        // The whole tree has to be read before sums and empty directories are known.
        let mut items = Vec::new();
        let mut next = walk.start(target.path(), app, &mut printer.out)?;
        while let Some(item) = next {
            if args.needs_all() {
                items.push(item)
            } else {
                printer.item(&target.volume, &item)?
            }
            next = walk.next(app, &mut printer.out)?;
        }
        for item in whole::settled(args, items) {
            printer.item(&target.volume, &item)?;
        }
    }
    printer.end()?;
    app.end_output(&mut printer.out)
}

impl Printer<'_> {
    fn item(&mut self, volume: &Opened, item: &Item) -> io::Result<()> {
        self.report.count(item);
        match &mut self.writer {
            Writer::Lines(lines) => lines.item(volume, item, &mut self.out),
            Writer::Document(document) => document.item(volume, item, &mut self.out),
            Writer::Objects => match &item.entry.metadata {
                Some(metadata) if item.depth > 0 => {
                    let line = json::line(|object| {
                        super::stat::members(object, volume, &item.entry.path, metadata);
                        object.raw("depth", item.depth);
                    });
                    self.out.write_all(line.as_bytes())
                }
                _ => Ok(()),
            },
        }
    }

    fn end(&mut self) -> io::Result<()> {
        let report = (!self.args.noreport).then_some(&self.report);
        match (&mut self.writer, report) {
            (Writer::Lines(_), Some(report)) => {
                self.out.write_all(report.text(self.args).as_bytes())
            }
            (Writer::Lines(_), None) => Ok(()),
            (Writer::Document(document), report) => document.end(report, &mut self.out),
            (Writer::Objects, _) => {
                let line = json::line(|object| {
                    object.raw("directories", self.report.below);
                    object.raw("files", self.report.files);
                });
                self.out.write_all(line.as_bytes())
            }
        }
    }
}
