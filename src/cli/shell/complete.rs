//! What may follow at the cursor: words, names, options, settings, paths.

use rustyline::completion::{FilenameCompleter, Pair};

use super::commands;
use super::words::{KEYWORDS, Names};
use crate::sql::{Piece, PieceKind, scan};

/// Most candidates that are shown.
const MOST: usize = 200;

/// The candidates for the word at the end of `before`, and where that word starts.
pub(super) fn complete(before: &str, names: &Names, files: &FilenameCompleter) -> (usize, Vec<Pair>) {
    if let Some(line) = before.trim_start().strip_prefix('\\')
        && !before.contains('\n')
    {
        let offset = before.len() - line.len() - 1;
        return command(before, offset, names, files);
    }
    let pieces = scan(before);
    match pieces.last() {
        Some(last) if last.kind == PieceKind::Comment => (before.len(), Vec::new()),
        Some(last) if last.kind == PieceKind::Text && last.is_open => quoted(before, &pieces, names, files),
        last => {
            let start = match last {
                Some(last) if last.kind == PieceKind::Word => last.range.start,
                Some(last) if last.kind == PieceKind::QuotedName && last.is_open => last.range.start + 1,
                _ => before.len(),
            };
            (start, word(before, start, &pieces, names))
        }
    }
}

/// A command, its file, or its table.
fn command(before: &str, offset: usize, names: &Names, files: &FilenameCompleter) -> (usize, Vec<Pair>) {
    let line = &before[offset..];
    let Some(space) = line.find(char::is_whitespace) else {
        let matching = commands::ALL.iter().map(|command| command.name).filter(|name| name.starts_with(line));
        return (offset, matching.map(|name| pair(name.to_owned())).collect());
    };
    let name = &line[..space];
    let start = before.rfind(char::is_whitespace).map_or(offset, |at| at + 1);
    if commands::takes_file(name) {
        return files.complete_path(before, before.len()).unwrap_or((before.len(), Vec::new()));
    }
    let word = &before[start..];
    let relations = names.relations.keys().filter(|name| name.starts_with(word));
    (start, relations.map(|name| pair(name.clone())).collect())
}

/// Inside a text: a path, the name of an option or of a setting.
fn quoted(before: &str, pieces: &[Piece], names: &Names, files: &FilenameCompleter) -> (usize, Vec<Pair>) {
    let start = pieces.last().map_or(before.len(), |piece| piece.range.start + 1);
    let prior: Vec<&str> = pieces[..pieces.len() - 1]
        .iter()
        .filter(|piece| !matches!(piece.kind, PieceKind::Space | PieceKind::Comment))
        .map(|piece| &before[piece.range.clone()])
        .collect();
    let is_word = |text: &str, word: &str| text.eq_ignore_ascii_case(word);
    let is_path = match prior.as_slice() {
        [.., key, "="] => matches!(*key, "'path'"),
        [.., from] => is_word(from, "FROM") || is_word(from, "JOIN"),
        [] => false,
    };
    if is_path {
        return files.complete_path(before, before.len()).unwrap_or((before.len(), Vec::new()));
    }
    let keys = match prior.as_slice() {
        [.., word] if is_word(word, "SET") || is_word(word, "RESET") => &names.settings,
        [.., with, "("] if is_word(with, "WITH") => &names.options,
        [.., "="] => return (start, Vec::new()),
        [.., ","] if prior.iter().any(|word| is_word(word, "WITH")) => &names.options,
        _ => return (start, Vec::new()),
    };
    let typed = &before[start..];
    let matching = keys.iter().filter(|key| key.starts_with(typed));
    (start, matching.map(|key| Pair { display: key.clone(), replacement: format!("{key}'") }).collect())
}

/// A word of SQL or a name; columns of the tables that the text mentions come first.
fn word(before: &str, start: usize, pieces: &[Piece], names: &Names) -> Vec<Pair> {
    let typed = before[start..].to_lowercase();
    let mentioned: Vec<&str> = pieces
        .iter()
        .filter(|piece| matches!(piece.kind, PieceKind::Word | PieceKind::QuotedName))
        .map(|piece| before[piece.range.clone()].trim_matches(['"', '`']))
        .collect();
    // Columns often stand before the FROM that would say of which table.
    let all = names.relations.iter();
    let (near, far): (Vec<_>, Vec<_>) = all.partition(|(name, _)| mentioned.contains(&name.as_str()));
    let columns = near.iter().chain(&far).flat_map(|(_, columns)| columns.iter().cloned());
    let is_upper = before[start..].chars().all(|c| !c.is_lowercase());
    let keywords =
        KEYWORDS.iter().map(|word| if is_upper { (*word).to_owned() } else { word.to_lowercase() });
    let functions = names.functions.iter().map(|name| format!("{name}("));
    let mut found: Vec<String> = Vec::new();
    for name in columns.chain(names.relations.keys().cloned()).chain(keywords).chain(functions) {
        if name.to_lowercase().starts_with(&typed) && !found.contains(&name) {
            found.push(name);
        }
        if found.len() == MOST {
            break;
        }
    }
    found.into_iter().map(pair).collect()
}

fn pair(text: String) -> Pair {
    Pair { display: text.clone(), replacement: text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            relations: [
                ("flights".to_owned(), vec!["origin".to_owned(), "dep_ts".to_owned()]),
                ("orders".to_owned(), vec!["order_id".to_owned()]),
            ]
            .into(),
            functions: vec!["round".to_owned(), "upper".to_owned()],
            settings: vec!["execution.parallelism".to_owned()],
            options: vec!["connector".to_owned(), "csv.header".to_owned(), "path".to_owned()],
        }
    }

    fn completed(before: &str) -> (usize, Vec<String>) {
        let (start, pairs) = complete(before, &names(), &FilenameCompleter::new());
        (start, pairs.into_iter().map(|pair| pair.replacement).collect())
    }

    #[test]
    fn words_and_names() {
        assert_eq!(completed("SELECT origin FROM fli"), (19, vec!["flights".to_owned()]));
        assert_eq!(completed("select ori").1, ["origin"]);
        assert_eq!(completed("SELECT * FROM orders WHERE or").1[0], "order_id");
        assert!(completed("SEL").1.contains(&"SELECT".to_owned()));
        assert!(completed("sel").1.contains(&"select".to_owned()));
        assert_eq!(completed("SELECT upp").1, ["upper("]);
        assert_eq!(completed("SELECT 1 -- ori").1, Vec::<String>::new());
    }

    #[test]
    fn options_settings_and_commands() {
        assert_eq!(completed("SET 'exec"), (5, vec!["execution.parallelism'".to_owned()]));
        assert_eq!(completed("CREATE TABLE t (a INT) WITH ('con").1, ["connector'"]);
        assert_eq!(completed("CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'p").1, ["path'"]);
        assert_eq!(completed("SELECT 'con").1, Vec::<String>::new());
        assert!(completed("\\ti").1.contains(&"\\timing".to_owned()));
        assert_eq!(completed("\\d fl"), (3, vec!["flights".to_owned()]));
    }

    #[test]
    fn paths_of_files() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("flights.csv"), "a\n").expect("writes");
        let dir = folder.path().display();
        for start in ["SELECT * FROM '", "CREATE TABLE t WITH ('path' = '"] {
            let (_, found) = completed(&format!("{start}{dir}/fli"));
            assert!(found.iter().any(|path| path.ends_with("flights.csv")), "{found:?}");
        }
        assert!(completed(&format!("\\i {dir}/fli")).1.iter().any(|path| path.ends_with("flights.csv")));
    }
}
