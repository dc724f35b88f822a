//! An invoice as a PDF, of its own: nothing is fetched, and names of tenants are only texts.

mod asked;
mod typesetting;

use std::ops::Range;
use std::sync::LazyLock;

use chrono::{Datelike as _, Timelike as _};
use coppice_core::{Error, Result};
use coppice_turns::{Behalf, Name, Turns, do_holding};
use coppice_wire as wire;
use krilla::Document;
use krilla::color::rgb;
use krilla::geom::{PathBuilder, Point};
use krilla::metadata::{DateTime, Metadata};
use krilla::page::PageSettings;
use krilla::paint::Fill;
use krilla::surface::Surface;
use krilla::text::KrillaGlyph;

use asked::Asked;
use typesetting::Typeface;

/// A4, in points.
const WIDTH: f32 = 595.0;
const HEIGHT: f32 = 842.0;
const MARGIN: f32 = 50.0;
const RIGHT: f32 = WIDTH - MARGIN;
/// The last line of a page is not below this.
const BOTTOM: f32 = HEIGHT - 70.0;
const TOP: f32 = 60.0;
const SIZE: f32 = 9.0;
const LEADING: f32 = 12.0;
/// Space above and below the text of a row.
const PADDING: f32 = 5.0;
/// Most lines of a cell, and of an address.
const CELL_LINES_MAX: usize = 3;
const ADDRESS_LINES_MAX: usize = 12;
/// Red, green and blue.
type Shade = (u8, u8, u8);

const INK: Shade = (28, 31, 35);
const QUIET: Shade = (91, 99, 109);
const FAINT: Shade = (213, 217, 222);

/// A column: its head, where it begins, how wide it is, and whether it is of numbers.
struct Column {
    head: &'static str,
    x: f32,
    width: f32,
    is_number: bool,
}

const COLUMNS: [Column; 6] = [
    Column { head: "Project", x: MARGIN, width: 90.0, is_number: false },
    Column { head: "What", x: 145.0, width: 118.0, is_number: false },
    Column { head: "From", x: 267.0, width: 50.0, is_number: false },
    Column { head: "Quantity", x: 318.0, width: 66.0, is_number: true },
    Column { head: "Price", x: 386.0, width: 98.0, is_number: true },
    Column { head: "", x: 487.0, width: RIGHT - 487.0, is_number: true },
];

/// Most lines: a longer invoice has forms for programs, and a page.
const LINES_MAX: usize = 10_000;
/// Those that are written at once, and of them those that one asked for; a long one takes a processor for seconds.
static WRITTEN: LazyLock<Turns<Name>> = LazyLock::new(|| Turns::new(2, 1));

/// Writes an invoice when it has its turn.
///
/// # Errors
/// `invalid_query_parameter` when it is too long; `rate_limited` when somebody has it written already, or many others are,
/// of everybody or of who asks; `internal`
pub(crate) async fn write_in_turn(invoice: wire::InvoiceDetails) -> Result<Vec<u8>> {
    if invoice.lines.len() > LINES_MAX {
        let why = format!("a PDF has at most {LINES_MAX} lines: ask for html or json");
        return Err(Error::invalid_query("format", why));
    }
    let by = Behalf::current_name();
    let asked = Asked::enter(&invoice.id, &by)?;
    let turn = WRITTEN.take(&by).await;
    do_holding((asked, turn), move || write(&invoice)).await.map_err(Error::internal)?
}

/// The same one is the same bytes each time.
fn write(invoice: &wire::InvoiceDetails) -> Result<Vec<u8>> {
    let mut sheets = Sheets { regular: typeface(false)?, bold: typeface(true)? };
    let opening = sheets.opening(invoice);
    let rows: Vec<_> = invoice.lines.iter().map(|line| sheets.row(line)).collect();
    let pages = paginate(&rows, opening.height);
    let mut document = Document::new();
    document.set_metadata(metadata(invoice));
    for (index, page_rows) in pages.iter().enumerate() {
        let settings = PageSettings::from_wh(WIDTH, HEIGHT).ok_or_else(|| Error::internal("no such page"))?;
        let mut page = document.start_page_with(settings);
        let mut surface = page.surface();
        let mut y = TOP;
        if index == 0 {
            sheets.draw_opening(&mut surface, &opening);
            y = opening.height;
        }
        y = sheets.draw_head(&mut surface, y, &invoice.currency);
        for row in rows.get(page_rows.clone()).unwrap_or_default() {
            y = sheets.draw_row(&mut surface, y, row);
        }
        if index + 1 == pages.len() {
            sheets.draw_total(&mut surface, y, invoice);
        }
        let foot = format!("Invoice {} · page {} of {}", invoice.invoice_number, index + 1, pages.len());
        sheets.draw(&mut surface, (MARGIN, HEIGHT - 40.0), 8.0, QUIET, &foot);
        surface.finish();
        page.finish();
    }
    document.finish().map_err(|error| Error::internal(format!("writing a PDF: {error:?}")))
}

fn typeface(is_bold: bool) -> Result<Typeface> {
    use dejavu::sans_condensed::{bold, regular};
    Typeface::new(if is_bold { bold() } else { regular() })
}

fn metadata(invoice: &wire::InvoiceDetails) -> Metadata {
    let made = invoice.invoice_date.0;
    let byte = |number: u32| u8::try_from(number).unwrap_or_default();
    let date = DateTime::new(u16::try_from(made.year()).unwrap_or_default());
    let date = date.month(byte(made.month())).day(byte(made.day())).hour(byte(made.hour()));
    let date = date.minute(byte(made.minute())).second(byte(made.second())).utc_offset_hour(0);
    Metadata::new()
        .title(format!("Invoice {}", invoice.invoice_number))
        .creator("Coppice".to_owned())
        .language("en".to_owned())
        .document_id(invoice.id.clone())
        .creation_date(date.utc_offset_minute(0))
}

/// What the first page begins with.
struct Opening {
    issuer: Vec<String>,
    customer: Vec<String>,
    title: String,
    facts: [String; 2],
    /// Where the table begins.
    height: f32,
}

/// A line of the invoice as it is broken into lines of its columns.
struct Row {
    cells: [Vec<String>; COLUMNS.len()],
    height: f32,
}

/// Which rows are on which page; the last has room for the total.
fn paginate(rows: &[Row], opening: f32) -> Vec<Range<usize>> {
    let head = LEADING + 2.0 * PADDING;
    let (mut pages, mut first, mut y) = (vec![], 0, opening + head);
    for (index, row) in rows.iter().enumerate() {
        let is_last = index + 1 == rows.len();
        let total = if is_last { head + PADDING } else { 0.0 };
        if y + row.height + total > BOTTOM && index > first {
            pages.push(first..index);
            (first, y) = (index, TOP + head);
        }
        y += row.height;
    }
    pages.push(first..rows.len());
    pages
}

struct Sheets {
    regular: Typeface,
    bold: Typeface,
}

impl Sheets {
    fn opening(&mut self, invoice: &wire::InvoiceDetails) -> Opening {
        let mut wrapped = |texts: &[&str], room: f32| {
            let lines = texts.iter().filter(|text| !text.is_empty());
            let lines = lines.flat_map(|text| self.regular.wrap(text, SIZE, room, CELL_LINES_MAX));
            lines.take(ADDRESS_LINES_MAX).collect::<Vec<_>>()
        };
        let issuer: Vec<_> = invoice.issuer.iter().map(String::as_str).collect();
        let issuer = wrapped(&issuer, 240.0);
        let customer = wrapped(&[&invoice.customer, &invoice.email], 200.0);
        let rows = issuer.len().max(customer.len() + 1);
        Opening {
            issuer,
            customer,
            title: format!("Invoice {}", invoice.invoice_number),
            facts: [
                format!("Date: {}", invoice.invoice_date.0.format("%-d %B %Y")),
                format!("For: {} (UTC)", invoice.month),
            ],
            height: TOP + rows as f32 * LEADING + 100.0,
        }
    }

    fn draw_opening(&mut self, surface: &mut Surface<'_>, opening: &Opening) {
        for (index, line) in opening.issuer.iter().enumerate() {
            self.draw(surface, (MARGIN, TOP + index as f32 * LEADING), SIZE, INK, line);
        }
        let x = RIGHT - 200.0;
        self.draw(surface, (x, TOP), SIZE, QUIET, "To");
        for (index, line) in opening.customer.iter().enumerate() {
            self.draw(surface, (x, TOP + (index + 1) as f32 * LEADING), SIZE, INK, line);
        }
        let y = opening.height - 55.0;
        self.draw_bold(surface, (MARGIN, y), 16.0, &opening.title);
        for (index, fact) in opening.facts.iter().enumerate() {
            self.draw(surface, (MARGIN, y + 18.0 + index as f32 * LEADING), SIZE, INK, fact);
        }
    }

    fn row(&mut self, line: &wire::InvoiceLine) -> Row {
        let project = line.project_name.as_deref().unwrap_or_default();
        let price = format!("{} / {}", line.unit_price, line.unit);
        let texts = [project, &line.description, &line.from, &line.quantity, &price, &line.amount];
        let mut cells: [Vec<String>; COLUMNS.len()] = Default::default();
        for ((cell, text), column) in cells.iter_mut().zip(texts).zip(&COLUMNS) {
            *cell = self.regular.wrap(text, SIZE, column.width, CELL_LINES_MAX);
        }
        let height = cells.iter().map(Vec::len).max().unwrap_or(1) as f32 * LEADING + PADDING;
        Row { cells, height }
    }

    fn draw_head(&mut self, surface: &mut Surface<'_>, y: f32, currency: &str) -> f32 {
        for column in &COLUMNS {
            let head = if column.head.is_empty() { currency } else { column.head };
            let x = match column.is_number {
                true => column.x + column.width - self.bold.width(head, SIZE),
                false => column.x,
            };
            self.draw_bold(surface, (x, y), SIZE, head);
        }
        rule(surface, y + PADDING, 1.2, INK);
        y + LEADING + 2.0 * PADDING
    }

    fn draw_row(&mut self, surface: &mut Surface<'_>, y: f32, row: &Row) -> f32 {
        for (cell, column) in row.cells.iter().zip(&COLUMNS) {
            for (index, text) in cell.iter().enumerate() {
                let x = match column.is_number {
                    true => column.x + column.width - self.regular.width(text, SIZE),
                    false => column.x,
                };
                self.draw(surface, (x, y + index as f32 * LEADING), SIZE, INK, text);
            }
        }
        rule(surface, y + row.height - LEADING + 1.0, 0.5, FAINT);
        y + row.height
    }

    fn draw_total(&mut self, surface: &mut Surface<'_>, y: f32, invoice: &wire::InvoiceDetails) {
        let y = y + PADDING;
        let total = format!("{} {}", invoice.total, invoice.currency);
        self.draw_bold(surface, (MARGIN, y), 11.0, "Total");
        let x = RIGHT - self.bold.width(&total, 11.0);
        self.draw_bold(surface, (x, y), 11.0, &total);
    }

    fn draw(&mut self, surface: &mut Surface<'_>, at: (f32, f32), size: f32, shade: Shade, text: &str) {
        draw_in(&mut self.regular, surface, at, size, shade, text);
    }

    fn draw_bold(&mut self, surface: &mut Surface<'_>, at: (f32, f32), size: f32, text: &str) {
        draw_in(&mut self.bold, surface, at, size, INK, text);
    }
}

fn draw_in(
    typeface: &mut Typeface,
    surface: &mut Surface<'_>,
    (x, y): (f32, f32),
    size: f32,
    (red, green, blue): Shade,
    text: &str,
) {
    let line = typeface.set(text);
    if line.glyphs.is_empty() {
        return;
    }
    surface.set_fill(Some(Fill { paint: rgb::Color::new(red, green, blue).into(), ..Fill::default() }));
    let glyphs: &[KrillaGlyph] = &line.glyphs;
    surface.draw_glyphs(Point::from_xy(x, y), glyphs, typeface.font.clone(), &line.text, size, false);
}

/// A line over the whole width.
fn rule(surface: &mut Surface<'_>, y: f32, weight: f32, (red, green, blue): Shade) {
    let mut builder = PathBuilder::new();
    builder.move_to(MARGIN, y);
    builder.line_to(RIGHT, y);
    builder.line_to(RIGHT, y + weight);
    builder.line_to(MARGIN, y + weight);
    builder.close();
    if let Some(path) = builder.finish() {
        surface.set_fill(Some(Fill { paint: rgb::Color::new(red, green, blue).into(), ..Fill::default() }));
        surface.draw_path(&path);
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime as Time;
    use coppice_core::ErrorKind;
    use coppice_test_support::text_of_pdf;

    use super::*;

    /// Names of projects that are hard to print.
    const NAMES: [&str; 6] = [
        ") Tj ET endstream (evil",
        "\u{5d7}\u{5e0}\u{5d5}\u{5ea} 24",
        "\u{41b}\u{430}\u{432}\u{43a}\u{430}",
        "\u{5e97}",
        "\u{202e}pohs",
        "sh\u{7}op",
    ];

    fn line(index: usize) -> wire::InvoiceLine {
        let name = match index {
            0 => "long ".repeat(2000),
            1 => "x".repeat(10_000),
            _ => format!("{} {index}", NAMES[index % NAMES.len()]),
        };
        wire::InvoiceLine {
            project_id: Some("prj_1".to_owned()),
            project_name: Some(name),
            description: "Storage".to_owned(),
            from: "2026-10-01".to_owned(),
            quantity: "1.000000".to_owned(),
            unit_price: "0.25".to_owned(),
            unit: "GiB and month".to_owned(),
            amount: "0.25".to_owned(),
        }
    }

    fn invoice(lines: usize) -> wire::InvoiceDetails {
        wire::InvoiceDetails {
            id: "bil_1".to_owned(),
            invoice_number: "2026-000001".to_owned(),
            invoice_date: wire::Timestamp(Time::from_timestamp(1_793_620_800, 0).expect("a time")),
            month: "2026-10".to_owned(),
            issuer: vec!["Example Ltd".to_owned(), "1 Wood Lane".to_owned()],
            customer: "Trees & Sons ".repeat(1000),
            email: "books@example.com".to_owned(),
            currency: "EUR".to_owned(),
            lines: (0..lines).map(line).collect(),
            total: "2500.00".to_owned(),
        }
    }

    fn pages(text: &str) -> Vec<&str> {
        text.trim_end_matches('\u{c}').split('\u{c}').collect()
    }

    #[tokio::test]
    async fn an_invoice_that_is_being_written_is_not_written_twice() {
        let again = || write_in_turn(wire::InvoiceDetails { id: "bil_twice".to_owned(), ..invoice(3) });
        let asked = Asked::enter("bil_twice", &"".into()).expect("it is the first");
        assert_eq!(again().await.expect_err("it is being written").kind(), ErrorKind::TooMany);
        drop(asked);
        again().await.expect("a PDF");
        again().await.expect("it was given back");
    }

    #[test]
    fn a_long_invoice_has_all_its_lines_and_its_total_on_the_last_page() {
        let text = text_of_pdf(&write(&invoice(LINES_MAX)).expect("a PDF"));
        let pages = pages(&text);
        let last = pages.last().expect("a page");
        assert!(last.contains("Total") && last.contains("2500.00 EUR"), "{last}");
        assert_eq!(text.matches("Total").count(), 1);
        assert_eq!(text.matches("Storage").count(), LINES_MAX, "each line is there");
        for (index, page) in pages.iter().enumerate() {
            let foot = format!("page {} of {}", index + 1, pages.len());
            assert!(page.contains(&foot), "{foot}: {page}");
        }
    }

    #[test]
    fn names_are_only_texts() {
        let text = text_of_pdf(&write(&invoice(30)).expect("a PDF"));
        for part in [
            "Tj ET",
            "endstream",
            "Trees & Sons",
            "\u{41b}\u{430}\u{432}\u{43a}\u{430} 26",
            "pohs 4",
            "sh op 5",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("\u{5d7}\u{5e0}\u{5d5}\u{5ea}"), "it is read from the right: {text}");
    }

    #[test]
    fn wherever_the_lines_end_there_is_room_for_the_total() {
        for lines in 0..80 {
            let mut invoice = invoice(lines);
            invoice.lines.iter_mut().for_each(|line| line.project_name = None);
            let text = text_of_pdf(&write(&invoice).expect("a PDF"));
            let pages = pages(&text);
            assert!(pages.last().is_some_and(|page| page.contains("Total")), "{lines} lines");
            assert_eq!(text.matches("Storage").count(), lines);
        }
    }

    #[tokio::test]
    async fn one_that_is_too_long_is_refused() {
        let refused = write_in_turn(invoice(LINES_MAX + 1)).await.expect_err("too long");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
}
