//! The part of an endpoint behind the `?`.

/// The value of the only key that the query may have.
pub(super) fn number<T: std::str::FromStr>(query: Option<&str>, key: &str) -> Result<Option<T>, String> {
    let Some(query) = query else { return Ok(None) };
    let value = query
        .strip_prefix(key)
        .and_then(|rest| rest.strip_prefix('='))
        .ok_or_else(|| format!("'?{query}' is not understood: only ?{key}=N"))?;
    value.parse().map(Some).map_err(|_| format!("'{value}' is not a number for {key}"))
}

pub(super) fn no_query(query: Option<&str>) -> Result<(), String> {
    query.map_or(Ok(()), |query| Err(format!("'?{query}' is not understood here")))
}
