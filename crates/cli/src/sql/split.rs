//! Splitting a script into statements, as SQLite itself would: at semicolons outside quotes, comments and the bodies of triggers.

/// A statement of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its text, without the semicolon.
    pub(crate) sql: String,
    /// The line it begins at, from 1: where its first word is.
    pub(crate) line: usize,
    /// Its first word, in capitals.
    pub(crate) word: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Code,
    /// Until this character; doubled, it stands for itself.
    Quoted(char),
    LineComment,
    BlockComment,
}

/// Takes a script in piece by piece and gives its statements out.
#[derive(Debug)]
pub(crate) struct Splitter {
    state: State,
    text: String,
    line: usize,
    begins: Option<usize>,
    words: Vec<String>,
    word: String,
    in_trigger: bool,
    last: char,
    /// The line of a `-` or `/` that may begin a comment.
    operator: Option<usize>,
}

impl Splitter {
    /// A splitter at the beginning of a script.
    pub(crate) fn new() -> Splitter {
        Splitter {
            state: State::Code,
            text: String::new(),
            line: 1,
            begins: None,
            words: Vec::new(),
            word: String::new(),
            in_trigger: false,
            last: '\0',
            operator: None,
        }
    }

    /// Takes more of the script; gives the statements that end in it to `found`.
    pub(crate) fn feed(&mut self, text: &str, found: &mut Vec<Piece>) {
        for c in text.chars() {
            self.take(c, found);
        }
    }

    /// The script has ended: whatever is left is its last statement.
    pub(crate) fn finish(&mut self, found: &mut Vec<Piece>) {
        self.end_word();
        if self.begins.is_some() {
            self.emit(found);
        }
        self.reset();
    }

    /// Whether a statement has begun that has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.begins.is_some() || matches!(self.state, State::Quoted(_) | State::BlockComment)
    }

    fn take(&mut self, c: char, found: &mut Vec<Piece>) {
        match self.state {
            State::Code => {
                if self.code(c, found) {
                    return;
                }
            }
            State::Quoted(end) => {
                self.text.push(c);
                if c == end {
                    // A doubled quote ends here and begins anew with the next character, which comes to the same.
                    self.state = State::Code;
                }
            }
            State::LineComment => {
                self.text.push(c);
                if c == '\n' {
                    self.state = State::Code;
                }
            }
            State::BlockComment => {
                self.text.push(c);
                if c == '/' && self.last == '*' {
                    self.state = State::Code;
                    // The slash does not begin another comment.
                    self.last = '\0';
                    return;
                }
            }
        }
        self.last = c;
        if c == '\n' {
            self.line += 1;
        }
    }

    /// Takes a character of code. Returns whether it began a comment and must not be looked back at: `/*/` does not end what it begins.
    fn code(&mut self, c: char, found: &mut Vec<Piece>) -> bool {
        if c == '-' && self.last == '-' || c == '*' && self.last == '/' {
            self.state = if c == '-' { State::LineComment } else { State::BlockComment };
            self.operator = None;
            self.text.push(c);
            self.last = '\0';
            return true;
        }
        if let Some(line) = self.operator.take() {
            self.begins.get_or_insert(line);
        }
        if c.is_alphanumeric() || c == '_' {
            self.begin();
            self.text.push(c);
            self.word.push(c);
            return false;
        }
        self.end_word();
        if c == ';' && self.ends_here() {
            if self.begins.is_some() {
                self.emit(found);
            }
            self.reset();
            return false;
        }
        self.text.push(c);
        match c {
            '\'' | '"' | '`' => {
                self.begin();
                self.words.push(String::new());
                self.state = State::Quoted(c);
            }
            '[' => {
                self.begin();
                self.words.push(String::new());
                self.state = State::Quoted(']');
            }
            ';' => self.words.push(";".into()),
            // The next character tells whether a comment begins here.
            '-' | '/' => self.operator = Some(self.line),
            _ if !c.is_whitespace() => self.begin(),
            _ => {}
        }
        false
    }

    fn begin(&mut self) {
        self.begins.get_or_insert(self.line);
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word).to_ascii_uppercase();
        self.words.push(word);
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        self.in_trigger |=
            matches!(words.as_slice(), ["CREATE", "TRIGGER"] | ["CREATE", "TEMP" | "TEMPORARY", "TRIGGER"]);
        // Beyond its beginning only the last words matter.
        if self.words.len() > 8 {
            self.words.drain(3..self.words.len() - 3);
        }
    }

    /// A trigger ends with `; END ;`, everything else with any semicolon.
    fn ends_here(&self) -> bool {
        !self.in_trigger || matches!(self.words.as_slice(), [.., before, end] if before == ";" && end == "END")
    }

    fn emit(&mut self, found: &mut Vec<Piece>) {
        let sql = self.text.trim().to_string();
        let word = self.words.iter().find(|word| !word.is_empty()).cloned().unwrap_or_default();
        found.push(Piece { sql, line: self.begins.expect("only what has begun is given out"), word });
    }

    fn reset(&mut self) {
        let line = self.line;
        *self = Splitter::new();
        self.line = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(script: &str) -> Vec<(String, usize, String)> {
        let mut found = Vec::new();
        let mut splitter = Splitter::new();
        splitter.feed(script, &mut found);
        splitter.finish(&mut found);
        found.into_iter().map(|piece| (piece.sql, piece.line, piece.word)).collect()
    }

    fn texts(script: &str) -> Vec<String> {
        split(script).into_iter().map(|(sql, ..)| sql).collect()
    }

    #[test]
    fn semicolons_in_quotes_and_comments_end_nothing() {
        assert_eq!(
            texts("SELECT ';', \";\", `;`, [;]; -- ; \nSELECT 2 /* ; */ ; /* only ; */ ;; SELECT 'it''s;'"),
            ["SELECT ';', \";\", `;`, [;]", "-- ; \nSELECT 2 /* ; */", "SELECT 'it''s;'"]
        );
        assert_eq!(texts("SELECT 1 - -1; SELECT 4/2;"), ["SELECT 1 - -1", "SELECT 4/2"]);
        assert_eq!(texts("/*/ ; */ SELECT 1;"), ["/*/ ; */ SELECT 1"]);
        assert_eq!(texts("  \n ; -- nothing\n"), Vec::<String>::new());
    }

    #[test]
    fn a_trigger_is_one_statement() {
        let trigger =
            "CREATE TEMP TRIGGER t AFTER INSERT ON a BEGIN UPDATE a SET b = 'END;'; SELECT CASE WHEN 1 THEN 2 END; END";
        assert_eq!(texts(&format!("{trigger};\nSELECT 1;")), [trigger, "SELECT 1"]);
        assert_eq!(texts("CREATE TABLE trigger_log (a); SELECT 1"), ["CREATE TABLE trigger_log (a)", "SELECT 1"]);
        assert_eq!(texts("BEGIN; COMMIT;"), ["BEGIN", "COMMIT"]);
    }

    #[test]
    fn lines_are_those_of_the_first_word() {
        let found = split("-- a\n/* b\n */ insert into t\nvalues (1);\n\nSELECT 2;");
        assert_eq!(found[0].1, 3);
        assert_eq!(found[0].2, "INSERT");
        assert_eq!((found[1].1, found[1].2.as_str()), (6, "SELECT"));
    }

    #[test]
    fn pieces_may_be_fed_anywhere_apart() {
        let script = "CREATE TRIGGER x AFTER DELETE ON t BEGIN SELECT 1; END; -- c\nSELECT 'a;''b' /* ; */; VALUES (1)";
        let whole = split(script);
        assert_eq!(whole.len(), 3);
        for at in 0..script.len() {
            let mut found = Vec::new();
            let mut splitter = Splitter::new();
            splitter.feed(&script[..at], &mut found);
            splitter.feed(&script[at..], &mut found);
            splitter.finish(&mut found);
            let found: Vec<_> = found.into_iter().map(|piece| (piece.sql, piece.line, piece.word)).collect();
            assert_eq!(found, whole, "split at {at}");
        }
    }

    #[test]
    fn an_open_statement_is_noticed() {
        let mut splitter = Splitter::new();
        let mut found = Vec::new();
        splitter.feed("SELECT 1\n", &mut found);
        assert!(splitter.is_open() && found.is_empty());
        splitter.feed(";\n", &mut found);
        assert!(!splitter.is_open());
        assert_eq!(found.len(), 1);
    }
}
