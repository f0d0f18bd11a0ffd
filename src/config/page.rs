//! Composes TOML line by line, with comments wrapped to a readable width.

const COMMENT_MAX_CHARS: usize = 100;

/// A TOML document in the making.
#[derive(Debug, Default)]
pub(super) struct TomlPage {
    text: String,
}

impl TomlPage {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    /// A section's header, after an empty line and its documentation.
    pub(super) fn section(&mut self, doc: &str, header: &str) {
        self.line("");
        self.comment(doc);
        self.line(&format!("[{header}]"));
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.line(&format!("{name} = {value}"));
    }

    /// A key behind a #: not set, but ready to be.
    pub(super) fn unset(&mut self, name: &str, value: &str) {
        self.line(&format!("#{name} = {value}"));
    }

    /// Each line of `text` is a paragraph.
    pub(super) fn comment(&mut self, text: &str) {
        for paragraph in text.lines() {
            let mut line = "#".to_owned();
            for word in paragraph.split(' ') {
                if line.chars().count() + 1 + word.chars().count() > COMMENT_MAX_CHARS {
                    self.line(&line);
                    line.truncate(1);
                }
                line.push(' ');
                line += word;
            }
            self.line(&line);
        }
    }
}
