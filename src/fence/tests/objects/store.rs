//! A store of the test's own around another: it fails after it has put, as a folder whose sync fails does, and counts.

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub(crate) struct Watched<S> {
    pub(crate) inner: S,
    /// The next put to a path with this part fails after it was done.
    unsynced: Mutex<Option<(&'static str, Error)>>,
    /// Requests, and entries that lists have answered.
    requests: AtomicU64,
    listed: Arc<AtomicU64>,
}

impl<S> Watched<S> {
    pub(crate) fn new(inner: S) -> Watched<S> {
        let (requests, listed) = (AtomicU64::new(0), Arc::default());
        Watched { inner, unsynced: Mutex::new(None), requests, listed }
    }

    pub(crate) fn fail_after_putting(&self, part: &'static str, error: Error) {
        *self.unsynced.lock().unwrap() = Some((part, error));
    }

    /// Requests, and entries that lists have answered, since the last question.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.requests.swap(0, Ordering::Relaxed), self.listed.swap(0, Ordering::Relaxed))
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl<S: fmt::Display> fmt::Display for Watched<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

#[async_trait]
impl<S: ObjectStore> ObjectStore for Watched<S> {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.count();
        let done = self.inner.put_opts(path, payload, options).await?;
        let mut unsynced = self.unsynced.lock().unwrap();
        match unsynced.take_if(|(part, _)| path.as_ref().contains(*part)) {
            Some((_, error)) => Err(error),
            None => Ok(done),
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.count();
        self.inner.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.count();
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.count();
        let listed = Arc::clone(&self.listed);
        let count = move |_: &Result<ObjectMeta>| {
            listed.fetch_add(1, Ordering::Relaxed);
        };
        self.inner.list(prefix).inspect(count).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.count();
        let list = self.inner.list_with_delimiter(prefix).await?;
        let entries = list.objects.len() + list.common_prefixes.len();
        self.listed.fetch_add(entries as u64, Ordering::Relaxed);
        Ok(list)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
