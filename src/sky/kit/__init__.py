"""Small tools that know none of the product's nouns: time, ids, codecs, backoff, faults, logging."""
