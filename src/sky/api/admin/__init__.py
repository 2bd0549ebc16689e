"""What an operator does: accounts, keys, payments, the ledger."""
