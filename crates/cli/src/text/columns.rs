//! Names in columns, as `ls` lays them out on a terminal.
//!
//! `ls` prints its cells with it. Every cell is printed once.

/// The order of cells in columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Down,
    Across,
}

/// Lays `widths` out in columns of a line `line` wide. Returns the number of rows, and each
/// column's width without the two spaces that follow it.
fn layout(widths: &[usize], line: usize, direction: Direction) -> (usize, Vec<usize>) {
    let most = widths.len().min(line / 3).max(1);
    for columns in (2..=most).rev() {
        let rows = widths.len().div_ceil(columns);
        let mut column_widths = vec![0; columns];
        for (at, width) in widths.iter().enumerate() {
            let column = if direction == Direction::Down {
                at / rows
            } else {
                at % columns
            };
            column_widths[column] = column_widths[column].max(*width);
        }
        let used = if direction == Direction::Down {
            widths.len().div_ceil(rows)
        } else {
            columns
        };
        // As in GNU `ls`, no column counts as narrower than three.
        let last = column_widths[columns - 1];
        let total =
            column_widths.iter().sum::<usize>() + 2 * (columns - 1) + 3_usize.saturating_sub(last);
        if used == columns && total < line {
            return (rows, column_widths);
        }
    }
    (
        widths.len(),
        vec![widths.iter().copied().max().unwrap_or(0)],
    )
}

/// Appends what leads from column `from` to column `to` of a line: a tab where a tab stop lies on
/// the way behind the next column, with stops that many columns apart; only spaces for 0.
fn pad(mut from: usize, to: usize, tab: usize, out: &mut Vec<u8>) {
    while from < to {
        let by_tab = tab > 0 && to / tab > (from + 1) / tab;
        out.push(if by_tab { b'\t' } else { b' ' });
        from = if by_tab {
            (from / tab + 1) * tab
        } else {
            from + 1
        };
    }
}

/// Returns the cells, each with its width, in columns of a line `line` wide, read across, with tabs
/// as [`pad`] makes them.
pub(crate) fn rows(cells: &[(Vec<u8>, usize)], line: usize, tab: usize) -> Vec<u8> {
    let widths: Vec<_> = cells.iter().map(|(_, width)| *width).collect();
    let (_, column_widths) = layout(&widths, line, Direction::Across);
    let mut out = Vec::new();
    for row in cells.chunks(column_widths.len()) {
        let mut start = 0;
        for (at, ((text, width), column_width)) in row.iter().zip(&column_widths).enumerate() {
            out.extend_from_slice(text);
            let next = start + column_width + 2;
            if at + 1 < row.len() {
                pad(start + width, next, tab, &mut out);
            }
            start = next;
        }
        out.push(b'\n');
    }
    out
}

/// Returns the cells, each with its width, in lines up to `line` wide, with commas between them.
pub(crate) fn commas(cells: &[(Vec<u8>, usize)], line: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0_usize;
    for (index, (text, width)) in cells.iter().enumerate() {
        if index > 0 {
            // The comma behind the next name has to fit too.
            let fits = at.saturating_add(width + 2) < line;
            out.extend_from_slice(if fits { b", " } else { b",\n" });
            at = if fits { at + 2 } else { 0 };
        }
        out.extend_from_slice(text);
        at += width;
    }
    if !cells.is_empty() {
        out.push(b'\n');
    }
    out
}

/// Returns the cells, each with its width, in columns of a line `line` wide, with tabs as [`pad`]
/// makes them.
pub(crate) fn columns(cells: &[(Vec<u8>, usize)], line: usize, tab: usize) -> Vec<u8> {
    let widths: Vec<_> = cells.iter().map(|(_, width)| *width).collect();
    let (rows, column_widths) = layout(&widths, line, Direction::Down);
    let mut out = Vec::new();
    for row in 0..rows {
        let mut start = 0;
        for (column, column_width) in column_widths.iter().enumerate() {
            let Some((text, width)) = cells.get(column * rows + row) else {
                break;
            };
            out.extend_from_slice(text);
            let next = start + column_width + 2;
            if (column + 1) * rows + row < cells.len() {
                pad(start + width, next, tab, &mut out);
            }
            start = next;
        }
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{columns, pad};

    fn check(names: &[&str], line: usize, shown: &str) {
        let cells: Vec<_> = names
            .iter()
            .map(|name| (name.as_bytes().to_vec(), name.len()))
            .collect();
        assert_eq!(
            String::from_utf8(columns(&cells, line, 0)).expect("text"),
            shown
        );
    }

    #[test]
    fn tabs_save_spaces() {
        let check = |from, to, tab, shown: &str| {
            let mut out = Vec::new();
            pad(from, to, tab, &mut out);
            assert_eq!(
                String::from_utf8(out).expect("text"),
                shown,
                "{from} {to} {tab}"
            );
        };
        check(5, 8, 8, "\t");
        check(7, 9, 8, "  ");
        check(7, 16, 8, "\t\t");
        check(3, 18, 8, "\t\t  ");
        check(3, 6, 0, "   ");
    }

    #[test]
    fn columns_read_downwards() {
        check(&["a", "b", "c"], 80, "a  b  c\n");
        check(&["aaaa", "b", "cc", "d"], 10, "aaaa  cc\nb     d\n");
        check(&["aaaaaaaaaaaa", "b"], 10, "aaaaaaaaaaaa\nb\n");
        check(&[], 80, "");
    }
}
