package etcdfile

import (
	"encoding/binary"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// records visits the records that a file has of a state, but for those of its history: bucket by
// bucket, in no order within a bucket.
func records(e *store.Export, visit func(bucket string, key, value []byte) error) error {
	meta := map[string][]byte{
		"consistent_index": binary.BigEndian.AppendUint64(nil, e.Index),
		"term":             binary.BigEndian.AppendUint64(nil, e.Term),
		"storageVersion":   []byte(StorageVersion),
	}
	if e.Compacted > 0 {
		meta["finishedCompactRev"] = revisionKey(e.Compacted, 0)
		meta["scheduledCompactRev"] = revisionKey(e.Compacted, 0)
	}
	for name, value := range meta {
		if err := visit("meta", []byte(name), value); err != nil {
			return err
		}
	}
	return stateRecords(e, visit)
}

// stateRecords visits those of leases, users and roles, in the order of their keys.
func stateRecords(e *store.Export, visit func(bucket string, key, value []byte) error) error {
	leases, err := e.Leases()
	if err != nil {
		return err
	}
	for _, l := range leases {
		id := binary.BigEndian.AppendUint64(nil, uint64(l.ID))
		if err := visit("lease", id, leaseRecord(l)); err != nil {
			return err
		}
	}
	return authRecords(e, visit)
}

// changeRecord is one version of a key as etcd has it, the change of a number within its revision.
func changeRecord(c store.Change, number uint64) (key, value []byte, err error) {
	key = revisionKey(c.KV.ModRevision, number)
	kv := &mvccpb.KeyValue{Key: c.KV.Key}
	if c.KV.Version == 0 {
		key = append(key, tombstoneMark)
	} else {
		kv.CreateRevision, kv.ModRevision = int64(c.KV.CreateRevision), int64(c.KV.ModRevision)
		kv.Version, kv.Value, kv.Lease = int64(c.KV.Version), c.KV.Value, c.KV.Lease
	}
	value, err = proto.Marshal(kv)
	return key, value, err
}

// leaseRecord is etcd's leasepb.Lease: id, term and rest in seconds.
func leaseRecord(l store.ExportedLease) []byte {
	var record []byte
	for field, value := range []uint64{uint64(l.ID), (l.TTLMillis + 999) / 1000,
		(l.LeftMillis + 999) / 1000} {
		if value != 0 {
			record = protowire.AppendTag(record, protowire.Number(field+1), protowire.VarintType)
			record = protowire.AppendVarint(record, value)
		}
	}
	return record
}

// userRecord is etcd's record of a user.
func userRecord(name string, u *storepb.UserRecord) ([]byte, error) {
	record := &authpb.User{Name: []byte(name), Password: u.Hash, Roles: u.Roles}
	if u.NoPassword {
		record.Options = &authpb.UserAddOptions{NoPassword: true}
	}
	return proto.Marshal(record)
}

// roleRecord is etcd's record of a role. It has nothing about keyspaces.
func roleRecord(name string, r *storepb.RoleRecord) ([]byte, error) {
	record := &authpb.Role{Name: []byte(name)}
	for _, p := range r.Permissions {
		record.KeyPermission = append(record.KeyPermission, &authpb.Permission{
			PermType: authpb.Permission_Type(p.Type), Key: p.Key, RangeEnd: p.RangeEnd})
	}
	return proto.Marshal(record)
}
