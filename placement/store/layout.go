package store

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2/cockroachkvs"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// The tables, each a letter after the local prefix of the store's partition: none is the 'a' of the
// local key "applied", which is the applied index.
const (
	tableEvent    = 'e' // revision, number within it -> the key that was written or deleted
	tableVersion  = 'k' // key, versioned by revision -> VersionRecord
	tableLease    = 'l' // lease -> LeaseRecord
	tableAttached = 'L' // lease, key -> nothing
	tableMembers  = 'c' // -> Members; absent while they are those of the founding
	tableMeta     = 'm' // -> MetaRecord
	tableSession  = 's' // session -> SessionRecord
	tableAnswer   = 'S' // session, sequence -> Result
	tableAuth     = 'A' // -> AuthRecord; absent while no user or role was ever changed
	tableUser     = 'u' // name -> UserRecord
	tableRole     = 'r' // name -> RoleRecord
	tableAlarm    = 'N' // member, type -> Alarm
)

const (
	localPrefixLength = 9
	// An engine key ends with the length of its version suffix, this byte included; 0 for none.
	noVersion       = 0
	versionSuffix   = 9
	appliedLength   = 16
	initialRevision = 1
)

// layout makes the engine keys of one store: they begin with the local prefix of its partition.
type layout struct {
	span                   keys.Span
	applied, meta, members []byte
	auth                   []byte
}

func newLayout(partition keys.PartitionID) *layout {
	l := &layout{span: keys.LocalSpan(partition),
		applied: keys.LocalKey(partition, keys.SuffixApplied)}
	l.meta, l.members = l.table(tableMeta), l.table(tableMembers)
	l.auth = l.table(tableAuth)
	return l
}

// prefix is what all keys of the store begin with.
func (l *layout) prefix() []byte { return l.applied[:localPrefixLength:localPrefixLength] }

// table is an unversioned engine key.
func (l *layout) table(table byte, parts ...[]byte) []byte {
	size := localPrefixLength + 2
	for _, p := range parts {
		size += len(p)
	}
	key := append(make([]byte, 0, size+versionSuffix), l.applied[:localPrefixLength]...)
	key = append(key, table)
	for _, p := range parts {
		key = append(key, p...)
	}
	return append(key, noVersion)
}

// end is the engine key at which a table ends.
func (l *layout) end(table byte) []byte { return l.table(table + 1) }

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// version is the engine key of the version of a key that a revision wrote. Versions sort newest
// first.
func (l *layout) version(key []byte, revision uint64) []byte {
	return append(binary.BigEndian.AppendUint64(l.table(tableVersion, key), revision), versionSuffix)
}

// decodeVersionKey is the reverse of layout.version. The key aliases the argument.
func decodeVersionKey(stateKey []byte) (key []byte, revision uint64, err error) {
	const head = localPrefixLength + 1
	n := len(stateKey)
	if n < head+1+versionSuffix || stateKey[head-1] != tableVersion ||
		stateKey[n-1] != versionSuffix ||
		stateKey[n-1-versionSuffix] != noVersion {
		return nil, 0, fmt.Errorf("state key %s is not a version of a key of the core",
			keys.Pretty(stateKey))
	}
	end := n - 1 - versionSuffix
	return stateKey[head:end:end], binary.BigEndian.Uint64(stateKey[end+1:]), nil
}

// event is the engine key of the nth event of a revision.
func (l *layout) event(revision uint64, n uint32) []byte {
	return l.table(tableEvent, binary.BigEndian.AppendUint32(number(revision), n))
}

func decodeEventKey(stateKey []byte) (revision uint64, n uint32, err error) {
	const head = localPrefixLength + 1
	if len(stateKey) != head+13 || stateKey[head-1] != tableEvent {
		return 0, 0, fmt.Errorf("state key %s is not an event of the core", keys.Pretty(stateKey))
	}
	return binary.BigEndian.Uint64(stateKey[head:]), binary.BigEndian.Uint32(stateKey[head+8:]), nil
}

// decodeNameKey reads the name that the key of a user or a role consists of.
func decodeNameKey(stateKey []byte) (string, error) {
	const head = localPrefixLength + 1
	if len(stateKey) < head+2 {
		return "", fmt.Errorf("state key %s has no name", keys.Pretty(stateKey))
	}
	return string(stateKey[head : len(stateKey)-1]), nil
}

// decodeNumberKey reads the number that the key of a lease or a session consists of, and what
// follows it.
func decodeNumberKey(stateKey []byte) (n uint64, rest []byte, err error) {
	const head = localPrefixLength + 1
	if len(stateKey) < head+9 {
		return 0, nil, fmt.Errorf("state key %s is too short", keys.Pretty(stateKey))
	}
	return binary.BigEndian.Uint64(stateKey[head:]), stateKey[head+8 : len(stateKey)-1], nil
}

func encodeApplied(index, term uint64) []byte {
	return binary.BigEndian.AppendUint64(number(index), term)
}

func decodeApplied(value []byte) (index, term uint64, err error) {
	if len(value) != appliedLength {
		return 0, 0, fmt.Errorf("the core's applied index is malformed: %d bytes, want %d",
			len(value), appliedLength)
	}
	return binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:]), nil
}

// compareKeys orders engine keys as the database does.
func compareKeys(a, b []byte) int { return cockroachkvs.Compare(a, b) }
