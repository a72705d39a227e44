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
            let column = if direction == Direction::Down { at / rows } else { at % columns };
            column_widths[column] = column_widths[column].max(*width);
        }
        let used = if direction == Direction::Down { widths.len().div_ceil(rows) } else { columns };
        // As in GNU `ls`, no column counts as narrower than three.
        let last = column_widths[columns - 1];
        let total = column_widths.iter().sum::<usize>() + 2 * (columns - 1) + 3_usize.saturating_sub(last);
        if used == columns && total < line {
            return (rows, column_widths);
        }
    }
    (widths.len(), vec![widths.iter().copied().max().unwrap_or(0)])
}

/// Returns the cells, each with its width, in columns of a line `line` wide, read across.
pub(crate) fn rows(cells: &[(Vec<u8>, usize)], line: usize) -> Vec<u8> {
    let widths: Vec<_> = cells.iter().map(|(_, width)| *width).collect();
    let (_, column_widths) = layout(&widths, line, Direction::Across);
    let mut out = Vec::new();
    for row in cells.chunks(column_widths.len()) {
        for (at, ((text, width), column_width)) in row.iter().zip(&column_widths).enumerate() {
            out.extend_from_slice(text);
            if at + 1 < row.len() {
                out.resize(out.len() + column_width - width + 2, b' ');
            }
        }
        out.push(b'\n');
    }
    out
}

/// Returns the cells, each with its width, in lines up to `line` wide, with commas between them.
pub(crate) fn commas(cells: &[(Vec<u8>, usize)], line: usize) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0_usize);
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

/// Returns the cells, each with its width, in columns of a line `line` wide.
pub(crate) fn columns(cells: &[(Vec<u8>, usize)], line: usize) -> Vec<u8> {
    let widths: Vec<_> = cells.iter().map(|(_, width)| *width).collect();
    let (rows, column_widths) = layout(&widths, line, Direction::Down);
    let mut out = Vec::new();
    for row in 0..rows {
        for (column, column_width) in column_widths.iter().enumerate() {
            let Some((text, width)) = cells.get(column * rows + row) else { break };
            out.extend_from_slice(text);
            if (column + 1) * rows + row < cells.len() {
                out.resize(out.len() + column_width - width + 2, b' ');
            }
        }
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::columns;

    fn check(names: &[&str], line: usize, shown: &str) {
        let cells: Vec<_> = names.iter().map(|name| (name.as_bytes().to_vec(), name.len())).collect();
        assert_eq!(String::from_utf8(columns(&cells, line)).expect("text"), shown);
    }

    #[test]
    fn columns_read_downwards() {
        check(&["a", "b", "c"], 80, "a  b  c\n");
        check(&["aaaa", "b", "cc", "d"], 10, "aaaa  cc\nb     d\n");
        check(&["aaaaaaaaaaaa", "b"], 10, "aaaaaaaaaaaa\nb\n");
        check(&[], 80, "");
    }
}
