// Package changelog writes the rounds of a log of changes into a target (package manifest says what
// a log is).
//
// A round goes like this: choose a moment; list the keyspaces and their partitions; have the data
// nodes write all versions between the moment of the round before and this one; create the
// description of the round. A keyspace that the round before does not have is new, or has just been
// restored: the round has what could be read of it at the moment before, too.
//
// # Two leaders
//
// Two members of the core may take themselves for the leader for a moment, and both may write a
// round after the same one. The description of a round is created under a name that the end of the
// round before decides, so one of them wins, and the other one continues from what that one has
// written. Pieces of the loser are left over, and are removed with the round.
package changelog
