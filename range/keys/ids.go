package keys

import (
	"strconv"
	"strings"
)

// KeyspaceID names a keyspace. Never reused.
type KeyspaceID uint32

// PartitionID names a partition; it is also the id of the partition's Raft group. Never reused. 0
// is none.
type PartitionID uint64

// ReplicaID names one replica of a partition; it is also its Raft peer id. Never reused within a
// partition. 0 is none.
type ReplicaID uint64

// NodeID names a data node. Never reused. 0 is none.
type NodeID uint64

const (
	// CorePartition is the Raft group of the consistent core itself.
	CorePartition PartitionID = 1
	// CoordinationPartition is the Raft group of the coordination store, which has the same members.
	CoordinationPartition PartitionID = 2
	// FirstDataPartition is the lowest id that a partition of a keyspace can have.
	FirstDataPartition PartitionID = 100
)

func (id KeyspaceID) String() string  { return "k" + strconv.FormatUint(uint64(id), 10) }
func (id PartitionID) String() string { return "p" + strconv.FormatUint(uint64(id), 10) }
func (id ReplicaID) String() string   { return "r" + strconv.FormatUint(uint64(id), 10) }
func (id NodeID) String() string      { return "n" + strconv.FormatUint(uint64(id), 10) }

// RequestID names a client's request; all attempts of one request have the same. The zero RequestID
// names none.
type RequestID struct {
	Client, Sequence uint64
}

// IsZero reports whether it names no request.
func (id RequestID) IsZero() bool { return id == RequestID{} }

// hiddenPrefix begins the names of hidden keyspaces. No client can create a keyspace of such a
// name: names of keyspaces have no slash.
const hiddenPrefix = "restore/"

// HiddenName is the name of a keyspace while a restore fills the keyspace. The restore gives the
// keyspace the name `name` at its end.
func HiddenName(restore, name string) string { return hiddenPrefix + restore + "/" + name }

// SplitHiddenName splits what HiddenName returned; false if the name is another one.
func SplitHiddenName(hidden string) (restore, name string, ok bool) {
	rest, ok := strings.CutPrefix(hidden, hiddenPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// IsHidden reports that a keyspace has a HiddenName: clients find it in lists, and not by its name.
func IsHidden(name string) bool { return strings.HasPrefix(name, hiddenPrefix) }
