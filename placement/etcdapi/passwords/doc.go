// Package passwords hashes passwords and compares them with their hashes (bcrypt), a few at a time.
//
// A hash is meant to take tens of milliseconds of processor time, and a client that asks for one
// need not be authenticated yet. So at most Config.AtOnce are computed at a time; the others wait.
// Parties, such as hosts, take turns, however many of their requests wait, and the number of
// waiting requests per party is bounded: a party that tries many passwords delays others by one
// hash.
package passwords
