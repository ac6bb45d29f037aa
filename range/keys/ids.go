package keys

import (
	"strconv"
	"strings"
)

// KeyspaceID identifies a keyspace. Ids are never reused.
type KeyspaceID uint32

// PartitionID identifies a partition, and is also the id of its Raft group. Ids are never reused. 0
// means no partition.
type PartitionID uint64

// ReplicaID identifies a replica within its partition, and is also its Raft peer id. Ids are never
// reused within a partition. 0 means no replica.
type ReplicaID uint64

// NodeID identifies a data node. Ids are never reused. 0 means no node.
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

// RequestID identifies a client's request; all attempts of a request share it. The zero RequestID
// identifies no request.
type RequestID struct {
	Client, Sequence uint64
}

// IsZero reports whether id is the zero RequestID.
func (id RequestID) IsZero() bool { return id == RequestID{} }

// hiddenPrefix begins the names of hidden keyspaces. No client can create a keyspace with such a
// name: keyspace names contain no slash.
const hiddenPrefix = "restore/"

// HiddenName is the name of a keyspace while a restore fills it. At its end the restore renames the
// keyspace to `name`.
func HiddenName(restore, name string) string { return hiddenPrefix + restore + "/" + name }

// SplitHiddenName splits a HiddenName into its parts; ok is false for any other name.
func SplitHiddenName(hidden string) (restore, name string, ok bool) {
	rest, ok := strings.CutPrefix(hidden, hiddenPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// IsHidden reports whether a keyspace has a HiddenName: lists show it to clients, but clients
// cannot open it by name.
func IsHidden(name string) bool { return strings.HasPrefix(name, hiddenPrefix) }
