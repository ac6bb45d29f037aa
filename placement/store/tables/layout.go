package tables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// The tables, each a letter after the local prefix of the store's partition. The letter 'a' is not
// used: the applied index has the local key "applied".
const (
	TableEvent    = 'e' // revision, number within it -> the key that was written or deleted
	TableVersion  = 'k' // key, versioned by revision -> VersionRecord
	TableLease    = 'l' // lease -> LeaseRecord
	TableAttached = 'L' // lease, key -> nothing
	tableMembers  = 'c' // -> Members; absent while the founding members are in force
	tableMeta     = 'm' // -> MetaRecord
	TableSession  = 's' // session -> SessionRecord
	tableAnswer   = 'S' // session, sequence -> Result
	tableAuth     = 'A' // -> AuthRecord; absent while no user or role was ever changed
	tableUser     = 'u' // name -> UserRecord
	tableRole     = 'r' // name -> RoleRecord
	tableAlarm    = 'N' // member, type -> Alarm
)

const (
	LocalPrefixLength = 9
	// An engine key ends with the length of its version suffix, this byte included; 0 for no
	// suffix.
	noVersion       = 0
	versionSuffix   = 9
	AppliedLength   = 16
	InitialRevision = 1
)

// Layout makes the engine keys of one store. They begin with the local prefix of its partition.
type Layout struct {
	Span                   keys.Span
	Applied, Meta, Members []byte
	auth                   []byte
}

func NewLayout(partition keys.PartitionID) *Layout {
	l := &Layout{Span: keys.LocalSpan(partition),
		Applied: keys.LocalKey(partition, keys.SuffixApplied)}
	l.Meta, l.Members = l.Table(tableMeta), l.Table(tableMembers)
	l.auth = l.Table(tableAuth)
	return l
}

// Prefix is the common prefix of all engine keys of the store.
func (l *Layout) Prefix() []byte { return l.Applied[:LocalPrefixLength:LocalPrefixLength] }

// Table is an unversioned engine key.
func (l *Layout) Table(table byte, parts ...[]byte) []byte {
	size := LocalPrefixLength + 2
	for _, p := range parts {
		size += len(p)
	}
	key := append(make([]byte, 0, size+versionSuffix), l.Applied[:LocalPrefixLength]...)
	key = append(key, table)
	for _, p := range parts {
		key = append(key, p...)
	}
	return append(key, noVersion)
}

// End is the engine key at which a table ends.
func (l *Layout) End(table byte) []byte { return l.Table(table + 1) }

func Number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// Version is the engine key of the version of a key that a revision wrote. Versions sort newest
// first.
func (l *Layout) Version(key []byte, revision uint64) []byte {
	return append(binary.BigEndian.AppendUint64(l.Table(TableVersion, key), revision), versionSuffix)
}

// DecodeVersionKey is the reverse of Layout.Version. The key aliases the argument.
func DecodeVersionKey(stateKey []byte) (key []byte, revision uint64, err error) {
	const head = LocalPrefixLength + 1
	n := len(stateKey)
	if n < head+1+versionSuffix || stateKey[head-1] != TableVersion ||
		stateKey[n-1] != versionSuffix ||
		stateKey[n-1-versionSuffix] != noVersion {
		return nil, 0, fmt.Errorf("state key %s is not a version of a key of the core",
			keys.Pretty(stateKey))
	}
	end := n - 1 - versionSuffix
	return stateKey[head:end:end], binary.BigEndian.Uint64(stateKey[end+1:]), nil
}

// Event is the engine key of the nth event of a revision.
func (l *Layout) Event(revision uint64, n uint32) []byte {
	return l.Table(TableEvent, binary.BigEndian.AppendUint32(Number(revision), n))
}

func DecodeEventKey(stateKey []byte) (revision uint64, n uint32, err error) {
	const head = LocalPrefixLength + 1
	if len(stateKey) != head+13 || stateKey[head-1] != TableEvent {
		return 0, 0, fmt.Errorf("state key %s is not an event of the core", keys.Pretty(stateKey))
	}
	return binary.BigEndian.Uint64(stateKey[head:]), binary.BigEndian.Uint32(stateKey[head+8:]), nil
}

// decodeNameKey reads the name from the key of a user or a role.
func decodeNameKey(stateKey []byte) (string, error) {
	const head = LocalPrefixLength + 1
	if len(stateKey) < head+2 {
		return "", fmt.Errorf("state key %s has no name", keys.Pretty(stateKey))
	}
	return string(stateKey[head : len(stateKey)-1]), nil
}

// decodeNumberKey reads the number from the key of a lease or a session, and returns the rest.
func decodeNumberKey(stateKey []byte) (n uint64, rest []byte, err error) {
	const head = LocalPrefixLength + 1
	if len(stateKey) < head+9 {
		return 0, nil, fmt.Errorf("state key %s is too short", keys.Pretty(stateKey))
	}
	return binary.BigEndian.Uint64(stateKey[head:]), stateKey[head+8 : len(stateKey)-1], nil
}

func EncodeApplied(index, term uint64) []byte {
	return binary.BigEndian.AppendUint64(Number(index), term)
}

func DecodeApplied(value []byte) (index, term uint64, err error) {
	if len(value) != AppliedLength {
		return 0, 0, fmt.Errorf("the core's applied index is malformed: %d bytes, want %d",
			len(value), AppliedLength)
	}
	return binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:]), nil
}

// compareKeys orders engine keys as the database does.
func compareKeys(a, b []byte) int { return cockroachkvs.Compare(a, b) }

func (l *Layout) Alarm(a *storepb.Alarm) []byte {
	return l.Table(tableAlarm, Number(a.GetMember()), Number(uint64(a.GetType())))
}

func (l *Layout) Session(id uint64) []byte { return l.Table(TableSession, Number(id)) }

func (l *Layout) Answer(id, sequence uint64) []byte {
	return l.Table(tableAnswer, Number(id), Number(sequence))
}

func (l *Layout) Lease(id int64) []byte { return l.Table(TableLease, Number(uint64(id))) }

func (l *Layout) Attached(lease int64, key []byte) []byte {
	return l.Table(TableAttached, Number(uint64(lease)), key)
}

func (l *Layout) AuthKey(table authority.Table, name string) []byte {
	switch table {
	case authority.UserTable:
		return l.Table(tableUser, []byte(name))
	case authority.RoleTable:
		return l.Table(tableRole, []byte(name))
	}
	return l.auth
}

// FirstEvent returns the key at which the events begin: that of the latest compaction's revision,
// or of the first event that the compaction has yet to remove.
func (l *Layout) FirstEvent(meta *storepb.MetaRecord) []byte {
	revision := meta.Compacted
	if rest := meta.CompactionRest; rest != nil {
		revision = min(revision, rest.Revision)
	}
	return l.Event(revision, 0)
}

// CheckPair checks that a pair of a snapshot belongs to a table, and that its key is above the
// last.
func (l *Layout) CheckPair(key, value, last []byte) (err error) {
	if len(key) < LocalPrefixLength+2 {
		return errors.New("a key is too short")
	}
	var record proto.Message
	table := key[LocalPrefixLength]
	switch suffix := int(key[len(key)-1]); {
	case table == TableVersion:
		_, _, err = DecodeVersionKey(key)
		record = &storepb.VersionRecord{}
	case suffix != noVersion:
		err = errors.New("a key has a version")
	case table == TableEvent:
		_, _, err = DecodeEventKey(key)
	case table == tableMeta:
		record = &storepb.MetaRecord{}
	case bytes.Equal(key, l.Members):
		record = &storepb.Members{}
	case bytes.Equal(key, l.auth):
		record = &storepb.AuthRecord{}
	case table == tableUser:
		_, err = decodeNameKey(key)
		record = &storepb.UserRecord{}
	case table == tableRole:
		_, err = decodeNameKey(key)
		record = &storepb.RoleRecord{}
	case table == tableAlarm:
		_, _, err = decodeNumberKey(key)
		record = &storepb.Alarm{}
	case table == TableLease:
		_, _, err = decodeNumberKey(key)
		record = &storepb.LeaseRecord{}
	case table == TableSession:
		_, _, err = decodeNumberKey(key)
		record = &storepb.SessionRecord{}
	case table == TableAttached:
		_, _, err = decodeNumberKey(key)
	case table == tableAnswer:
		_, _, err = decodeNumberKey(key)
		record = &storepb.Result{}
	case !bytes.Equal(key, l.Applied):
		err = fmt.Errorf("table %q is not known to this version", table)
	}
	if err == nil && record != nil {
		err = proto.Unmarshal(value, record)
	}
	if err == nil && last != nil && compareKeys(last, key) >= 0 {
		err = errors.New("its keys do not ascend")
	}
	return err
}
