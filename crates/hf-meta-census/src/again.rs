//! Reads or counts rows again.

use std::collections::{HashMap, HashSet};

use super::part::{CensusPart, PartRows};
use super::read_limits::ReadLimits;
use super::read_repo::count_again;
use super::run::{Census, CensusSummary, read_rows};
use super::table_file::HeaderWriter;
use super::{CensusError, CensusRow};

impl Census {
    /// Reads the repositories whose status is `failed` again.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census, or cannot be read or written.
    pub async fn retry(&self) -> Result<CensusSummary, CensusError> {
        let mut summary = CensusSummary::default();
        for part in self.parts().await? {
            let PartRows { mut rows, parts } = part.read(&self.storage).await?;
            if rows.iter().any(CensusRow::has_failed) {
                let headers = self.retry_part(&part, &mut rows).await?;
                part.replace(&self.storage, &rows, Some(headers), parts).await?;
            }
            summary.add(&rows);
        }
        Ok(summary)
    }

    /// Reads the failed rows of a part again. Returns the headers of all rows of the part.
    async fn retry_part(
        &self,
        part: &CensusPart,
        rows: &mut [CensusRow],
    ) -> Result<HeaderWriter, CensusError> {
        let failed = rows.iter().enumerate().filter(|(_, row)| row.has_failed());
        let repos: Vec<_> = failed.map(|(at, row)| (at, row.listing())).collect();
        let names: HashSet<_> = repos.iter().map(|(_, repo)| repo.repo.clone()).collect();
        let mut headers = part.start_headers()?;
        for header in part.read_headers(&self.storage).await? {
            let header = header?;
            if !names.contains(&header.repo) {
                headers.write(header)?;
            }
        }
        let (client, jobs) = (&self.client, self.jobs);
        let limits = ReadLimits::new(jobs);
        let read = read_rows(client, repos, &limits, jobs, Some(&mut headers), true, |_| ());
        for (at, row) in read.await? {
            rows[at] = row;
        }
        Ok(headers)
    }

    /// Recounts all rows from the stored headers with the current rules, without sending a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the target contains no census, or cannot be read or written.
    pub async fn count(&self) -> Result<CensusSummary, CensusError> {
        let mut summary = CensusSummary::default();
        for part in self.parts().await? {
            let PartRows { mut rows, parts } = part.read(&self.storage).await?;
            summary.not_counted += self.count_part(&part, &mut rows).await?;
            part.replace(&self.storage, &rows, None, parts).await?;
            summary.add(&rows);
        }
        Ok(summary)
    }

    /// Counts the rows of a part. Returns the number of rows that were left unchanged.
    async fn count_part(
        &self,
        part: &CensusPart,
        rows: &mut [CensusRow],
    ) -> Result<usize, CensusError> {
        let names = rows.iter().enumerate().filter(|(_, row)| row.depends_on_headers());
        let mut waiting: HashMap<_, _> = names.map(|(at, row)| (row.repo.clone(), at)).collect();
        rows.iter_mut().filter(|row| !row.depends_on_headers()).for_each(CensusRow::set_current);
        let mut headers = part.read_headers(&self.storage).await?;
        let (mut next, mut not_counted) = (headers.next().transpose()?, 0);
        while let Some(first) = next.take() {
            let mut of_repo = vec![first];
            loop {
                next = headers.next().transpose()?;
                match next.take_if(|header| header.repo == of_repo[0].repo) {
                    Some(header) => of_repo.push(header),
                    None => break,
                }
            }
            if let Some(at) = waiting.remove(&of_repo[0].repo) {
                match count_again(&self.client, &rows[at], &of_repo).await {
                    Some(counted) => rows[at] = counted,
                    None => not_counted += 1,
                }
            }
        }
        Ok(waiting.len() + not_counted)
    }
}
