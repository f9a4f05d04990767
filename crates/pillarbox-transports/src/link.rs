//! One connection that many callers share, made when it is first needed and again after it broke.

use std::future::Future;

use tokio::sync::Mutex;

/// A connection, or the place for one.
#[derive(Debug)]
pub(crate) struct Link<C> {
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    made_count: u64,
    current: Option<C>,
}

/// A connection as one caller got it. Tells which one is meant when it turns out to be broken.
#[derive(Clone, Debug)]
pub(crate) struct Line<C> {
    number: u64,
    pub(crate) connection: C,
}

impl<C: Clone> Link<C> {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { made_count: 0, current: None }) }
    }

    /// The connection that all use; without one, the first caller makes it and the others wait.
    pub(crate) async fn get<E>(&self, connect: impl Future<Output = Result<C, E>>) -> Result<Line<C>, E> {
        let mut state = self.state.lock().await;
        let connection = match &state.current {
            Some(connection) => connection.clone(),
            None => {
                let connection = connect.await?;
                state.made_count += 1;
                state.current = Some(connection.clone());
                connection
            }
        };
        Ok(Line { number: state.made_count, connection })
    }

    /// Forgets a connection that is broken, unless another took its place meanwhile.
    pub(crate) async fn broken(&self, line: &Line<C>) {
        let mut state = self.state.lock().await;
        if state.made_count == line.number {
            state.current = None;
        }
    }

    /// Takes the connection out, for an orderly end.
    pub(crate) async fn take(&self) -> Option<C> {
        self.state.lock().await.current.take()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    async fn made(link: &Link<u32>, name: u32) -> Line<u32> {
        link.get(async move { Ok::<_, Infallible>(name) }).await.unwrap_or_else(|never| match never {})
    }

    #[tokio::test]
    async fn a_connection_is_shared_until_it_breaks() {
        let link = Link::new();
        let first = made(&link, 1).await;
        assert_eq!(made(&link, 2).await.connection, 1);
        link.broken(&first).await;
        let second = made(&link, 3).await;
        assert_eq!(second.connection, 3);
        link.broken(&first).await;
        assert_eq!(made(&link, 4).await.connection, 3, "news of an old connection say nothing of the new one");
        assert_eq!(link.take().await, Some(3));
        assert_eq!(made(&link, 5).await.connection, 5);
    }

    #[tokio::test]
    async fn a_failed_try_leaves_the_place_free() {
        let link = Link::new();
        assert_eq!(link.get(async { Err::<u32, _>("refused") }).await.unwrap_err(), "refused");
        assert_eq!(made(&link, 1).await.connection, 1);
    }
}
