// Package changelog writes the rounds of a log of changes into a target. Package manifest defines
// logs and rounds.
//
// A round has these steps: choose a moment; list the keyspaces and their partitions; have the data
// nodes write all versions between the moment of the round before and the new moment; create the
// description of the round. A keyspace that the round before does not have is new, or was just
// restored. For such a keyspace, the round also has everything that could be read at the moment of
// the round before.
//
// # Two leaders
//
// Two members of the core may both believe for a short time that they lead, and both may write the
// next round. The name of a round's description is determined by the end of the round before, so
// only one of them can create the description. The other one reads that description and continues
// after it. The loser's pieces are left over, and are removed together with the round.
package changelog
