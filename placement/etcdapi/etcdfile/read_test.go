package etcdfile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// sample writes a file as etcd does, with several levels of pages and one long value.
func sample(t testing.TB, keys int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		put := func(main, number int64, deleted bool, kv *mvccpb.KeyValue) {
			key := revisionKey(uint64(main), uint64(number))
			if deleted {
				key = append(key, tombstoneMark)
			}
			value, err := proto.Marshal(kv)
			if err == nil {
				err = tx.Bucket([]byte("key")).Put(key, value)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		at := int64(2)
		for i := range keys {
			kv := &mvccpb.KeyValue{Key: fmt.Appendf(nil, "k%05d", (i*7919)%keys), Version: 1,
				CreateRevision: at, ModRevision: at, Lease: int64(i % 3), Value: make([]byte, 20)}
			put(at, 0, false, kv)
			at++
			if i%2 == 0 {
				kv.Version, kv.ModRevision, kv.Value = 2, at, []byte("newer")
				put(at, 0, false, kv)
				at++
			}
		}
		put(at, 0, true, &mvccpb.KeyValue{Key: []byte("k00003")})
		at++
		put(at, 0, false, &mvccpb.KeyValue{Key: []byte("long"), Version: 1, CreateRevision: at,
			ModRevision: at, Value: make([]byte, 50_000)})
		put(at, 1, true, &mvccpb.KeyValue{Key: []byte("k00004")})
		for id := uint64(1); id < 3; id++ {
			if err := tx.Bucket([]byte("lease")).Put(binary.BigEndian.AppendUint64(nil, id),
				[]byte{8, byte(id), 16, 60, 24, 7}); err != nil {
				return err
			}
		}
		role, err := proto.Marshal(&authpb.Role{Name: []byte("reader"),
			KeyPermission: []*authpb.Permission{{Key: []byte("a"), RangeEnd: []byte("b")}}})
		if err == nil {
			err = tx.Bucket([]byte("authRoles")).Put([]byte("reader"), role)
		}
		if err != nil {
			return err
		}
		user, err := proto.Marshal(&authpb.User{Name: []byte("root"), Password: []byte("hash"),
			Roles: []string{"reader", "root"}})
		if err != nil {
			return err
		}
		return tx.Bucket([]byte("authUsers")).Put([]byte("root"), user)
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpen(t *testing.T) {
	const keys = 3000
	path := sample(t, keys)
	if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, ErrNoSum) {
		t.Errorf("without a sum: %v", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if err := os.WriteFile(path, append(content, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Sum != sum || f.Len() != keys || len(f.Users) != 1 || len(f.Roles) != 1 ||
		string(f.Users[0].Hash) != "hash" || len(f.Roles[0].Permissions) != 1 || len(f.Leases) != 2 ||
		f.Leases[1] != (Lease{ID: 2, TTL: 60, Left: 7}) || f.Revision != 2+keys+keys/2+1 {
		t.Errorf("%+v", *f)
	}
	for n, name := range []string{"k00000", "k00001", "k00002", "k00004", "k00005"} {
		k, err := f.Key(n)
		if err != nil || string(k.KV.Key) != name || name == "k00004" != (k.KV.Version == 0) ||
			k.KV.Version == 2 != (string(k.KV.Value) == "newer") {
			t.Error(k, err)
		}
		if k.KV.Version == 0 && (k.Number != 1 || uint64(k.KV.ModRevision) != f.Revision) {
			t.Error(k)
		}
	}
	if k, err := f.Key(f.Len() - 1); err != nil || len(k.KV.Value) != 50_000 {
		t.Error(err)
	}
	if f.Search(nil) != 0 || f.Search([]byte("k00001")) != 2 || f.Search([]byte("k00003")) != 3 {
		t.Error("keys are not found")
	}
	content[len(content)/2]++
	if err := os.WriteFile(path, append(content, sum[:]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path, Options{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("with another sum: %v", err)
	}
}

// Whatever a file has, reading it ends, with an error or without.
func TestOpenDamaged(t *testing.T) {
	path := sample(t, 400)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 5))
	failed := 0
	for range 800 {
		bad := append([]byte(nil), good...)
		for range 1 + random.IntN(3) {
			page := random.IntN(len(bad)/4096) * 4096
			switch random.IntN(4) {
			case 0: // what a page says of itself
				bad[page+random.IntN(48)] = byte(random.Uint32())
			case 1:
				bad[random.IntN(len(bad))] ^= 1 << random.IntN(8)
			case 2: // a page in the place of another one
				other := random.IntN(len(bad)/4096) * 4096
				copy(bad[page:page+4096], good[other:])
				if random.IntN(2) == 0 {
					binary.LittleEndian.PutUint64(bad[page:], uint64(page/4096))
				}
			case 3:
				bad = bad[:random.IntN(len(bad))]
			}
			if len(bad) < 8192 {
				break
			}
		}
		if openBytes(t, path, bad) != nil {
			failed++
		}
	}
	if failed < 150 {
		t.Errorf("only %d damaged files are noticed", failed)
	}
}

// openBytes reads all of a file.
func openBytes(t testing.TB, path string, content []byte) error {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(context.Background(), path, Options{WithoutSum: true})
	if err != nil {
		return err
	}
	defer f.Close()
	for n := range f.Len() {
		if _, err := f.Key(n); err != nil {
			return err
		}
	}
	return nil
}

func FuzzOpen(f *testing.F) {
	content, err := os.ReadFile(sample(f, 5))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Fuzz(func(t *testing.T, content []byte) {
		_ = openBytes(t, filepath.Join(t.TempDir(), "db"), content)
	})
}
