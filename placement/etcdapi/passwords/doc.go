// Package passwords hashes passwords and compares them with their hashes (bcrypt), a few at a time.
//
// A hash takes tens of milliseconds of a processor on purpose, and a client that asks for one need
// not be known yet. So at most Config.AtOnce are made at a time; the others wait. Parties, such as
// hosts, take turns, however many of theirs wait, and each may have only so many waiting: one that
// tries many passwords delays others by one hash.
package passwords
