//! Edits that end at every point, as with `kill -9`.

use std::fs::File;
use std::path::PathBuf;

use hf_meta_format::formats::safetensors::{MetadataEdit, edit_header, pad_header, padded_header};

use super::*;
use crate::disk::RealDisk;

/// A disk that stops after a number of bytes and operations. Nothing works after that, as in a killed process.
struct StoppingDisk {
    disk: RealDisk,
    left: usize,
}

impl StoppingDisk {
    /// Takes the cost of an operation. Returns how much of it still happens.
    fn spend(&mut self, cost: usize) -> usize {
        let spent = cost.min(self.left);
        self.left -= spent;
        spent
    }

    fn once(&mut self, operation: impl FnOnce(&mut RealDisk) -> io::Result<()>) -> io::Result<()> {
        match self.spend(1) {
            1 => operation(&mut self.disk),
            _ => Err(io::Error::other("stopped")),
        }
    }

    fn partly(
        &mut self,
        content: &[u8],
        operation: impl FnOnce(&mut RealDisk, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = self.spend(content.len());
        if written > 0 {
            operation(&mut self.disk, &content[..written])?;
        }
        if written < content.len() { Err(io::Error::other("stopped")) } else { Ok(()) }
    }
}

impl EditDisk for StoppingDisk {
    fn create(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        self.partly(content, |disk, content| disk.create(path, content))
    }

    fn create_copy(
        &mut self,
        path: &Path,
        header: &[u8],
        from: &File,
        range: Range<u64>,
        hash: Option<&mut Sha256>,
    ) -> io::Result<()> {
        let Range { start, end } = range;
        let nothing = start..start;
        self.partly(header, |disk, header| disk.create_copy(path, header, from, nothing, None))?;
        fs::remove_file(path)?;
        let spent = self.spend(usize::try_from(end - start).unwrap()) as u64;
        self.disk.create_copy(path, header, from, start..start + spent, hash)?;
        if start + spent < end { Err(io::Error::other("stopped")) } else { Ok(()) }
    }

    fn overwrite(&mut self, file: &File, at: u64, content: &[u8]) -> io::Result<()> {
        self.partly(content, |disk, content| disk.overwrite(file, at, content))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.once(|disk| disk.rename(from, to))
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.once(|disk| disk.remove(path))
    }

    fn sync_folder(&mut self, file: &Path) -> io::Result<()> {
        self.once(|disk| disk.sync_folder(file))
    }
}

const JSON: &str = r#"{"__metadata__":{"format":"pt","ss_tag":"a long value"},"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}"#;

/// A file in a folder that is removed with it.
struct Sample {
    folder: tempfile::TempDir,
    path: PathBuf,
    old: Vec<u8>,
    new: Vec<u8>,
}

fn file(json: &[u8]) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes(), json, b"xyz"].concat()
}

impl Sample {
    fn new(is_rewrite: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let old = pad_header(JSON.into(), 200).unwrap();
        fs::write(&path, file(&old)).unwrap();
        let edits = [
            MetadataEdit::Delete("ss_*".to_owned()),
            MetadataEdit::Set { key: "modelspec.title".to_owned(), value: "A title".to_owned() },
        ];
        let edited = edit_header(&old, &edits).unwrap();
        let new = if is_rewrite {
            padded_header(edited, 500).unwrap()
        } else {
            pad_header(edited, old.len()).unwrap()
        };
        Self { folder, path, old, new }
    }

    fn edit(&self, disk: &mut impl EditDisk) -> Result<(), FileEditError> {
        let target = Target::open(&self.path).unwrap();
        if self.old.len() == self.new.len() {
            write_in_place(disk, &target, self.old.clone(), self.new.clone())
        } else {
            rewrite(disk, &target, &self.old, &self.new, None)
        }
    }

    fn recover(&self) -> Option<Recovery> {
        let target = Target::open(&self.path).unwrap();
        recover(&mut RealDisk::default(), &target).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Stops at every byte and every operation. The next command leaves the old or the new file, and nothing else.
#[test]
fn a_file_is_whole_after_an_edit_that_stopped_anywhere() {
    use Recovery::{Completed, Undone, WasComplete};

    for is_rewrite in [false, true] {
        let (mut points, mut results) = (0, Vec::new());
        loop {
            let sample = Sample::new(is_rewrite);
            let edited = sample.edit(&mut StoppingDisk { disk: RealDisk::default(), left: points });
            let recovery = sample.recover();
            let found = fs::read(&sample.path).unwrap();
            assert_eq!(sample.names(), ["model.safetensors"], "stopped after {points}");
            let is_new = found == file(&sample.new);
            assert!(is_new || found == file(&sample.old), "stopped after {points}: {recovery:?}");
            match recovery {
                Some(Recovery::Completed | Recovery::WasComplete) => assert!(is_new, "{points}"),
                Some(Recovery::Undone) => assert!(!is_new, "{points}"),
                Some(Recovery::Replaced) => panic!("stopped after {points}"),
                None => {}
            }
            if results.last() != Some(&recovery) {
                results.push(recovery);
            }
            if edited.is_ok() {
                assert!(is_new && recovery.is_none());
                break;
            }
            points += 1;
        }
        assert!(points > 500, "{points} points");
        let expected = if is_rewrite {
            vec![None, Some(Undone), None]
        } else {
            vec![None, Some(Undone), Some(Completed), Some(WasComplete), None]
        };
        assert_eq!(results, expected);
    }
}

/// A recovery that stops is recovered.
#[test]
fn a_recovery_can_stop_anywhere() {
    let probe = Sample::new(false);
    let journal = Journal {
        file: Target::open(&probe.path).unwrap().id,
        old: probe.old.clone(),
        new: probe.new.clone(),
    };
    // The journal is complete, and half of the header is written.
    let stop = journal.encode().len() + 2 + probe.new.len() / 2;
    for points in 0.. {
        let sample = Sample::new(false);
        sample.edit(&mut StoppingDisk { disk: RealDisk::default(), left: stop }).unwrap_err();
        let stopped = {
            let target = Target::open(&sample.path).unwrap();
            recover(&mut StoppingDisk { disk: RealDisk::default(), left: points }, &target).is_err()
        };
        sample.recover();
        assert_eq!(fs::read(&sample.path).unwrap(), file(&sample.new), "stopped after {points}");
        assert_eq!(sample.names(), ["model.safetensors"]);
        if !stopped {
            assert!(points > 200, "{points} points");
            break;
        }
    }
}

#[test]
fn a_file_that_changed_meanwhile_is_not_edited() {
    for is_rewrite in [false, true] {
        let sample = Sample::new(is_rewrite);
        let target = Target::open(&sample.path).unwrap();
        let mut other = file(&sample.old);
        *other.last_mut().unwrap() = b'!';
        let replacement = sample.folder.path().join("other");
        fs::write(&replacement, &other).unwrap();
        fs::rename(&replacement, &sample.path).unwrap();
        let (old, new) = (sample.old.clone(), sample.new.clone());
        let mut disk = RealDisk::default();
        let edited = if is_rewrite {
            rewrite(&mut disk, &target, &old, &new, None)
        } else {
            write_in_place(&mut disk, &target, old, new)
        };
        assert!(matches!(edited, Err(FileEditError::Changed { .. })), "{edited:?}");
        assert_eq!(fs::read(&sample.path).unwrap(), other);
        assert_eq!(sample.names(), ["model.safetensors"]);
    }
}

/// A file that replaced the edited one keeps its header.
#[test]
fn a_journal_of_another_file_is_removed() {
    let sample = Sample::new(false);
    let stop = Journal {
        file: Target::open(&sample.path).unwrap().id,
        old: sample.old.clone(),
        new: sample.new.clone(),
    };
    let left = stop.encode().len() + 2 + 50;
    sample.edit(&mut StoppingDisk { disk: RealDisk::default(), left }).unwrap_err();
    let replacement = sample.folder.path().join("other");
    fs::write(&replacement, file(&sample.old)).unwrap();
    fs::rename(&replacement, &sample.path).unwrap();
    assert_eq!(sample.recover(), Some(Recovery::Replaced));
    assert_eq!(fs::read(&sample.path).unwrap(), file(&sample.old));
    assert_eq!(sample.names(), ["model.safetensors"]);
}

#[cfg(unix)]
#[test]
fn a_file_is_edited_by_one_process_at_a_time() {
    let sample = Sample::new(false);
    let _first = Target::open(&sample.path).unwrap();
    let second = Target::open(&sample.path);
    assert!(matches!(second, Err(FileEditError::Locked { .. })), "{second:?}");
}

#[test]
fn a_rewrite_checks_the_stated_hash() {
    // `printf xyz | sha256sum`
    let xyz = "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282";
    for (stated, is_right) in [(xyz, true), (&"0".repeat(64), false)] {
        let sample = Sample::new(true);
        let target = Target::open(&sample.path).unwrap();
        let disk = &mut RealDisk::default();
        match rewrite(disk, &target, &sample.old, &sample.new, Some(stated)) {
            Ok(()) => assert!(is_right),
            Err(FileEditError::WrongHash { found, .. }) => assert!(!is_right && found == xyz),
            Err(error) => panic!("{error}"),
        }
        let expected = if is_right { file(&sample.new) } else { file(&sample.old) };
        assert_eq!(fs::read(&sample.path).unwrap(), expected);
        assert_eq!(sample.names(), ["model.safetensors"]);
    }
}

#[test]
fn a_stopped_rewrite_leaves_the_file() {
    let sample = Sample::new(true);
    let target = Target::open(&sample.path).unwrap();
    let mut disk = RealDisk::default();
    disk.progress.stop();
    let stopped = rewrite(&mut disk, &target, &sample.old, &sample.new, None);
    assert!(matches!(stopped, Err(FileEditError::Stopped { .. })), "{stopped:?}");
    assert_eq!(
        (fs::read(&sample.path).unwrap(), disk.progress.remove_copy()),
        (file(&sample.old), None)
    );
    assert_eq!(sample.names(), ["model.safetensors"]);
}
