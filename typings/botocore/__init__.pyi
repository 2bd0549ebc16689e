"""The part of botocore that is used here (the package ships no types)."""
