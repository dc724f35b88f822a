use std::io::Write as _;
use std::process::{Command, Stdio};

/// What poppler reads in a PDF, page by page, each with a form feed at its end.
///
/// # Panics
/// When it is no PDF, or poppler is missing.
pub fn text_of_pdf(bytes: &[u8]) -> String {
    let mut reader = Command::new("pdftotext");
    reader.args(["-layout", "-", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut reader = reader.spawn().expect("pdftotext runs: run `make setup`");
    let mut input = reader.stdin.take().expect("a pipe");
    let bytes = bytes.to_vec();
    let writing = std::thread::spawn(move || input.write_all(&bytes));
    let read = reader.wait_with_output().expect("an end");
    writing.join().expect("it is written").expect("it listens");
    assert!(read.status.success(), "it is a PDF");
    String::from_utf8(read.stdout).expect("text")
}
