//! The columns of `df`, by the names that `--output` takes.
//!
//! `df` makes its table of them. A name that is unknown or given twice is a usage error.

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Source,
    Fstype,
    Itotal,
    Iused,
    Iavail,
    Ipcent,
    Size,
    Used,
    Avail,
    Pcent,
    File,
    Target,
}

/// The columns with their names, their headings and their least widths, in the order in which all
/// are shown. Texts stand left, numbers right.
const FIELDS: [(Field, &str, &str, usize); 12] = [
    (Field::Source, "source", "Filesystem", 14),
    (Field::Fstype, "fstype", "Type", 4),
    (Field::Itotal, "itotal", "Inodes", 5),
    (Field::Iused, "iused", "IUsed", 5),
    (Field::Iavail, "iavail", "IFree", 5),
    (Field::Ipcent, "ipcent", "IUse%", 4),
    (Field::Size, "size", "blocks", 5),
    (Field::Used, "used", "Used", 5),
    (Field::Avail, "avail", "Avail", 5),
    (Field::Pcent, "pcent", "Use%", 4),
    (Field::File, "file", "File", 0),
    (Field::Target, "target", "Mounted on", 0),
];

/// The columns that a table has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields(pub(super) Vec<Field>);

impl Fields {
    /// Reads names with commas between them; all columns where there is no name.
    pub(super) fn argument(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(FIELDS.iter().map(|(field, ..)| *field).collect()));
        }
        let mut fields = Vec::new();
        for name in text.split(',') {
            let found = FIELDS.iter().find(|(_, known, ..)| *known == name);
            let (field, ..) = found.ok_or_else(|| format!("{name:?} is no column"))?;
            if fields.contains(field) {
                return Err(format!("{name:?} is there twice"));
            }
            fields.push(*field);
        }
        Ok(Self(fields))
    }
}

impl Field {
    fn row(self) -> (&'static str, usize) {
        let (_, _, heading, least) = FIELDS[self as usize];
        (heading, least)
    }

    /// Returns the heading, where the unit does not change it.
    pub(super) fn heading(self) -> &'static str {
        self.row().0
    }

    /// Returns the least width.
    pub(super) fn least_width(self) -> usize {
        self.row().1
    }

    /// Returns whether the column has texts, and not numbers.
    pub(super) fn is_text(self) -> bool {
        matches!(
            self,
            Self::Source | Self::Fstype | Self::File | Self::Target
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{FIELDS, Field, Fields};

    #[test]
    fn columns_are_read() {
        assert_eq!(
            Fields::argument("size,source"),
            Ok(Fields(vec![Field::Size, Field::Source]))
        );
        assert_eq!(
            Fields::argument("").map(|Fields(fields)| fields.len()),
            Ok(12)
        );
        assert!(Fields::argument("size,size").is_err() && Fields::argument("x").is_err());
    }

    #[test]
    fn each_column_has_its_row() {
        for (at, (field, ..)) in FIELDS.iter().enumerate() {
            assert_eq!(*field as usize, at, "{field:?}");
        }
    }
}
