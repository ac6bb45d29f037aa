package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// ReservedPrefix is the prefix of placement's own keys in the core's store. Clients may read
	// these keys but not write them.
	ReservedPrefix = "/_tidemark/"
	// TablePrefix is the prefix of the records that are sent to nodes and clients.
	TablePrefix = ReservedPrefix + "table/"

	NodePrefix      = TablePrefix + "node/"      // node -> clusterpb.Node
	AlivePrefix     = TablePrefix + "alive/"     // node -> nothing, under the node's lease
	KeyspacePrefix  = TablePrefix + "keyspace/"  // keyspace -> clusterpb.Keyspace
	PartitionPrefix = TablePrefix + "partition/" // keyspace/partition -> clusterpb.Partition

	clusterKey      = ReservedPrefix + "cluster"    // the cluster's id
	IDsKey          = ReservedPrefix + "ids"        // serverpb.Ids
	serverPrefix    = ReservedPrefix + "server/"    // directory -> node
	directoryPrefix = ReservedPrefix + "directory/" // node -> serverpb.Server
	NamePrefix      = ReservedPrefix + "name/"      // name of a keyspace -> its id
	CreationPrefix  = ReservedPrefix + "creation/"  // keyspace -> serverpb.Creation
	TokenPrefix     = ReservedPrefix + "token/"     // number modulo MaxTokens -> serverpb.Token
	callPrefix      = ReservedPrefix + "call/"      // id modulo MaxCalls -> serverpb.Call
	CoreGoalKey     = ReservedPrefix + "core"       // serverpb.CoreGoal; absent: nothing is under way
	OperatorPrefix  = ReservedPrefix + "operator/"  // partition -> serverpb.Operator
	HeldPrefix      = ReservedPrefix + "held/"      // partition -> the one whose operator merges it
	RecoveryPrefix  = ReservedPrefix + "recovery/"  // partition -> clusterpb.RecoveredPartition
	eventPrefix     = ReservedPrefix + "event/"     // number -> clusterpb.Event
	eventsKey       = ReservedPrefix + "events"     // the number of the last event
	ConsumerPrefix  = ReservedPrefix + "consumer/"  // keyspace/name -> clusterpb.Consumer
	SettingsKey     = ReservedPrefix + "settings"   // clusterpb.PlacementSettings
	BackupPrefix    = ReservedPrefix + "backup/"    // id -> clusterpb.Backup
	// SchedulePrefix: name -> clusterpb.BackupSchedule
	SchedulePrefix = ReservedPrefix + "backup-schedule/"

	// GuardKey has the clusterpb.GuardState. It is absent if servers never had to follow users and
	// roles.
	GuardKey = ReservedPrefix + "guard"
	// RecoveredKey exists after the core has continued from one member, until the record of GuardKey
	// is turned off.
	RecoveredKey = ReservedPrefix + "recovered"

	// LevelKey has the serverpb.Level. It is absent if the cluster is at level 0.
	LevelKey = ReservedPrefix + "level"

	// CoordinationKey has the storepb.Members with which the coordination store was founded.
	CoordinationKey = ReservedPrefix + "coordination"

	// MaxGCWindow is the maximum GC window of a keyspace: 100 years, in seconds.
	MaxGCWindow = 100 * 366 * 24 * 3600
	// MaxTextBytes is the maximum length of an address, a locality, a tag, a version or a sentence.
	MaxTextBytes = 1024
	// Chunk is the number of partitions that one transaction writes or removes.
	Chunk = 256
	// MaxTokens is the number of creations and drops that are remembered, and MaxCalls the
	// number of other calls of the service Cluster that are.
	MaxTokens, MaxCalls = 1024, 1024

	// nodeLeases is the first id of nodes' leases. Clients are unlikely to choose ids in this range.
	nodeLeases = 0x7469_6465_0000_0000
)

// NodeKey is the key of a node's record.
func NodeKey(id keys.NodeID) []byte { return fmt.Appendf(nil, "%s%016x", NodePrefix, uint64(id)) }

// AliveKey is the key that a node has under its lease.
func AliveKey(id keys.NodeID) []byte { return fmt.Appendf(nil, "%s%016x", AlivePrefix, uint64(id)) }

// DirectoryKey is the key of the record with a node's directory.
func DirectoryKey(id keys.NodeID) []byte {
	return fmt.Appendf(nil, "%s%016x", directoryPrefix, uint64(id))
}

// ServerKey is the key of the record with the node that a directory belongs to.
func ServerKey(server uint64) []byte { return fmt.Appendf(nil, "%s%016x", serverPrefix, server) }

// NameKey is the key of the record with the id of a keyspace's name.
func NameKey(name string) []byte { return []byte(NamePrefix + name) }

// TokenKey is the key of the token with a number.
func TokenKey(number uint64) []byte {
	return fmt.Appendf(nil, "%s%04x", TokenPrefix, number%MaxTokens)
}

// CallKey is the key of the record of a call with an id.
func CallKey(id uint64) []byte { return fmt.Appendf(nil, "%s%04x", callPrefix, id>>1%MaxCalls) }

// NodeLease is the id of a node's lease.
func NodeLease(id keys.NodeID) int64 { return nodeLeases + int64(id) }

// KeyspaceKey is the key of a keyspace's record.
func KeyspaceKey(id keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x", KeyspacePrefix, uint32(id))
}

// CreationKey is the key of the record with the remaining work of a creation.
func CreationKey(id keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x", CreationPrefix, uint32(id))
}

// RecoveryKey is the key of the confirmation of a recovered partition.
func RecoveryKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", RecoveryPrefix, uint64(id))
}

// OperatorKey is the key of a partition's operator.
func OperatorKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", OperatorPrefix, uint64(id))
}

// HeldKey is the key that marks a partition which an operator of its left neighbour merges.
func HeldKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", HeldPrefix, uint64(id))
}

// PartitionsOf is the prefix of the keys of a keyspace's partitions.
func PartitionsOf(ks keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x/", PartitionPrefix, uint32(ks))
}

// PartitionKey is the key of a partition's descriptor.
func PartitionKey(ks keys.KeyspaceID, id keys.PartitionID) []byte {
	return fmt.Appendf(PartitionsOf(ks), "%016x", uint64(id))
}

func eventKey(number uint64) []byte { return fmt.Appendf(nil, "%s%016x", eventPrefix, number) }

// LastID reads the hexadecimal id at the end of a key of the table.
func LastID(key []byte, digits int) (id uint64, err error) {
	if len(key) < digits {
		return 0, fmt.Errorf("the core's key %s is malformed", keys.Pretty(key))
	}
	for _, c := range key[len(key)-digits:] {
		switch {
		case c >= '0' && c <= '9':
			id = id<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			id = id<<4 | uint64(c-'a'+10)
		default:
			return 0, fmt.Errorf("the core's key %s is malformed", keys.Pretty(key))
		}
	}
	return id, nil
}

// EncodeID returns the stored form of an id.
func EncodeID(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func decodeID(value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, errors.New("an id in the core's store is malformed")
	}
	return binary.BigEndian.Uint64(value), nil
}

// Encode encodes a record. It replaces text that is not valid UTF-8, which protobuf refuses: a
// reason may quote an error of another server. No other error is possible.
func Encode(r proto.Message) []byte {
	value, err := proto.Marshal(r)
	if err == nil {
		return value
	}
	r = proto.Clone(r)
	if err = replaceInvalidText(r); err == nil {
		value, err = proto.Marshal(r)
	}
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", r, err))
	}
	return value
}

// replaceInvalidText replaces invalid UTF-8 in the strings of a message.
func replaceInvalidText(m proto.Message) error {
	return protorange.Range(m.ProtoReflect(), func(path protopath.Values) error {
		last := path.Index(-1)
		text, ok := last.Value.Interface().(string)
		if !ok || utf8.ValidString(text) {
			return nil
		}
		valid := protoreflect.ValueOfString(strings.ToValidUTF8(text, "\uFFFD"))
		parent := path.Index(-2).Value
		switch last.Step.Kind() {
		case protopath.FieldAccessStep:
			parent.Message().Set(last.Step.FieldDescriptor(), valid)
		case protopath.ListIndexStep:
			parent.List().Set(last.Step.ListIndex(), valid)
		}
		return nil
	})
}

// Malformed returns the error for a record that cannot be decoded.
func Malformed(key []byte, err error) error {
	return fmt.Errorf("the core's record %s is malformed: %w", keys.Pretty(key), err)
}

// All yields the records under a prefix, in the order of their keys. After an error it yields
// nothing more.
func All[T any, R interface {
	*T
	proto.Message
}](v *store.View, prefix []byte) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		for kv, err := range v.All(prefix) {
			r := R(new(T))
			if err == nil {
				if err = proto.Unmarshal(kv.Value, r); err != nil {
					err = Malformed(kv.Key, err)
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Load reads a record and the revision at which it was written. The revision is 0 if the record
// does not exist.
func Load(v *store.View, key []byte, r proto.Message) (revision uint64, err error) {
	kv, err := v.Get(key)
	if err != nil || kv == nil {
		return 0, err
	}
	if err := proto.Unmarshal(kv.Value, r); err != nil {
		return 0, Malformed(key, err)
	}
	return kv.ModRevision, nil
}

// LoadID reads an id. The id is 0 if the record does not exist.
func LoadID(v *store.View, key []byte) (id, revision uint64, err error) {
	kv, err := v.Get(key)
	if err != nil || kv == nil {
		return 0, 0, err
	}
	id, err = decodeID(kv.Value)
	return id, kv.ModRevision, err
}

// LoadIDs reads the counters. If they do not exist, it returns the first ids.
func LoadIDs(v *store.View) (ids *serverpb.Ids, revision uint64, err error) {
	ids = &serverpb.Ids{}
	if revision, err = Load(v, []byte(IDsKey), ids); err == nil && revision == 0 {
		ids = &serverpb.Ids{Node: 1, Keyspace: 1, Partition: uint64(keys.FirstDataPartition), Token: 1}
	}
	ids.Operator = max(ids.Operator, 1)
	return ids, revision, err
}
