package server

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// ReservedPrefix is what placement's own keys in the core's store begin with. Clients may read
	// them and not write them.
	ReservedPrefix = "/_tidemark/"
	// tablePrefix is what of that is sent to nodes and clients.
	tablePrefix = ReservedPrefix + "table/"

	nodePrefix      = tablePrefix + "node/"      // node -> clusterpb.Node
	alivePrefix     = tablePrefix + "alive/"     // node -> nothing, under the node's lease
	keyspacePrefix  = tablePrefix + "keyspace/"  // keyspace -> clusterpb.Keyspace
	partitionPrefix = tablePrefix + "partition/" // keyspace/partition -> clusterpb.Partition

	clusterKey     = ReservedPrefix + "cluster"    // the cluster's id
	idsKey         = ReservedPrefix + "ids"        // serverpb.Ids
	serverPrefix   = ReservedPrefix + "server/"    // directory -> node
	directoryPref  = ReservedPrefix + "directory/" // node -> serverpb.Server
	namePrefix     = ReservedPrefix + "name/"      // name of a keyspace -> its id
	creationPrefix = ReservedPrefix + "creation/"  // keyspace -> serverpb.Creation
	tokenPrefix    = ReservedPrefix + "token/"     // number modulo maxTokens -> serverpb.Token
	coreGoalKey    = ReservedPrefix + "core"       // serverpb.CoreGoal; absent: nothing is under way
	operatorPrefix = ReservedPrefix + "operator/"  // partition -> serverpb.Operator
	heldPrefix     = ReservedPrefix + "held/"      // partition -> the one whose operator merges it
	recoveryPrefix = ReservedPrefix + "recovery/"  // partition -> clusterpb.RecoveredPartition
	eventPrefix    = ReservedPrefix + "event/"     // number -> clusterpb.Event
	eventsKey      = ReservedPrefix + "events"     // the number of the last event
	consumerPrefix = ReservedPrefix + "consumer/"  // keyspace/name -> clusterpb.Consumer
	settingsKey    = ReservedPrefix + "settings"   // clusterpb.PlacementSettings

	// guardKey has the clusterpb.GuardState; absent: servers never had to follow users and roles.
	guardKey = ReservedPrefix + "guard"
	// recoveredKey is there when the core has gone on from one member, until guardKey is put off.
	recoveredKey = ReservedPrefix + "recovered"

	// coordinationKey has the storepb.Members with which the coordination store was founded.
	coordinationKey = ReservedPrefix + "coordination"

	// maxTokens is how many creations and drops are remembered.
	maxTokens = 1024

	// nodeLeases is where the ids of nodes' leases begin: beyond what clients are likely to choose.
	nodeLeases = 0x7469_6465_0000_0000
)

func nodeKey(id keys.NodeID) []byte  { return fmt.Appendf(nil, "%s%016x", nodePrefix, uint64(id)) }
func aliveKey(id keys.NodeID) []byte { return fmt.Appendf(nil, "%s%016x", alivePrefix, uint64(id)) }
func directoryKey(id keys.NodeID) []byte {
	return fmt.Appendf(nil, "%s%016x", directoryPref, uint64(id))
}
func serverKey(server uint64) []byte { return fmt.Appendf(nil, "%s%016x", serverPrefix, server) }
func nameKey(name string) []byte     { return []byte(namePrefix + name) }
func tokenKey(number uint64) []byte {
	return fmt.Appendf(nil, "%s%04x", tokenPrefix, number%maxTokens)
}
func nodeLease(id keys.NodeID) int64 { return nodeLeases + int64(id) }

func keyspaceKey(id keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x", keyspacePrefix, uint32(id))
}

func creationKey(id keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x", creationPrefix, uint32(id))
}

func recoveryKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", recoveryPrefix, uint64(id))
}

func operatorKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", operatorPrefix, uint64(id))
}

func heldKey(id keys.PartitionID) []byte {
	return fmt.Appendf(nil, "%s%016x", heldPrefix, uint64(id))
}

func partitionsOf(ks keys.KeyspaceID) []byte {
	return fmt.Appendf(nil, "%s%08x/", partitionPrefix, uint32(ks))
}

func partitionKey(ks keys.KeyspaceID, id keys.PartitionID) []byte {
	return fmt.Appendf(partitionsOf(ks), "%016x", uint64(id))
}

func eventKey(number uint64) []byte { return fmt.Appendf(nil, "%s%016x", eventPrefix, number) }

// lastID reads the hexadecimal id with which a key of the table ends.
func lastID(key []byte, digits int) (id uint64, err error) {
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

func encodeID(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func decodeID(value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, errors.New("an id in the core's store is malformed")
	}
	return binary.BigEndian.Uint64(value), nil
}

type storedRecord interface {
	MarshalVT() ([]byte, error)
	UnmarshalVT([]byte) error
}

// encode cannot fail for the messages that are stored here; if it does, an invariant is broken.
func encode(r storedRecord) []byte {
	value, err := r.MarshalVT()
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", r, err))
	}
	return value
}

func errMalformed(key []byte, err error) error {
	return fmt.Errorf("the core's record %s is malformed: %w", keys.Pretty(key), err)
}

// load reads a record, and the revision at which it was written; 0 if it is not there.
func load(v *store.View, key []byte, r storedRecord) (revision uint64, err error) {
	kv, err := v.Get(key)
	if err != nil || kv == nil {
		return 0, err
	}
	if err := r.UnmarshalVT(kv.Value); err != nil {
		return 0, errMalformed(key, err)
	}
	return kv.ModRevision, nil
}

// loadID reads an id; 0 if it is not there.
func loadID(v *store.View, key []byte) (id, revision uint64, err error) {
	kv, err := v.Get(key)
	if err != nil || kv == nil {
		return 0, 0, err
	}
	id, err = decodeID(kv.Value)
	return id, kv.ModRevision, err
}

// loadIDs reads the counters, which begin with the first ids.
func loadIDs(v *store.View) (ids *serverpb.Ids, revision uint64, err error) {
	ids = &serverpb.Ids{}
	if revision, err = load(v, []byte(idsKey), ids); err == nil && revision == 0 {
		ids = &serverpb.Ids{Node: 1, Keyspace: 1, Partition: uint64(keys.FirstDataPartition), Token: 1}
	}
	ids.Operator = max(ids.Operator, 1)
	return ids, revision, err
}

func loadAlive(v *store.View) (map[uint64]bool, error) {
	alive := map[uint64]bool{}
	for kv, err := range v.All([]byte(alivePrefix)) {
		if err != nil {
			return nil, err
		}
		id, err := lastID(kv.Key, 16)
		if err != nil {
			return nil, err
		}
		alive[id] = true
	}
	return alive, nil
}

// loadNodes reads all nodes, by ascending id, and whether they are alive.
func loadNodes(v *store.View) ([]*clusterpb.Node, error) {
	alive, err := loadAlive(v)
	if err != nil {
		return nil, err
	}
	var nodes []*clusterpb.Node
	for kv, err := range v.All([]byte(nodePrefix)) {
		if err != nil {
			return nil, err
		}
		n := &clusterpb.Node{}
		if err := n.UnmarshalVT(kv.Value); err != nil {
			return nil, errMalformed(kv.Key, err)
		}
		n.Alive = alive[n.Id]
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// countNodes counts the nodes that were not decommissioned.
func countNodes(v *store.View) (n uint64, err error) {
	nodes, err := loadNodes(v)
	for _, node := range nodes {
		if node.Status != clusterpb.NodeStatus_NODE_GONE {
			n++
		}
	}
	return n, err
}

// storedKeyspace is a keyspace, and the revision of its record.
type storedKeyspace struct {
	*clusterpb.Keyspace
	revision uint64
}

func (k storedKeyspace) id() keys.KeyspaceID { return keys.KeyspaceID(k.Id) }

func loadKeyspaces(v *store.View) ([]storedKeyspace, error) {
	var all []storedKeyspace
	for kv, err := range v.All([]byte(keyspacePrefix)) {
		if err != nil {
			return nil, err
		}
		k := &clusterpb.Keyspace{}
		if err := k.UnmarshalVT(kv.Value); err != nil {
			return nil, errMalformed(kv.Key, err)
		}
		all = append(all, storedKeyspace{k, kv.ModRevision})
	}
	return all, nil
}

// loadKeyspace reads one keyspace; nil if it is not there.
func loadKeyspace(v *store.View, id keys.KeyspaceID) (storedKeyspace, error) {
	k := &clusterpb.Keyspace{}
	revision, err := load(v, keyspaceKey(id), k)
	if err != nil || revision == 0 {
		return storedKeyspace{}, err
	}
	return storedKeyspace{k, revision}, nil
}

func decodePartition(key, value []byte) (*clusterpb.Partition, error) {
	p := &clusterpb.Partition{}
	if err := p.UnmarshalVT(value); err != nil {
		return nil, errMalformed(key, err)
	}
	return p, nil
}

// candidates is the planner's view of the nodes.
func candidates(nodes []*clusterpb.Node) []planner.Node {
	out := make([]planner.Node, len(nodes))
	for i, n := range nodes {
		out[i] = plannerNode(n)
	}
	return out
}
