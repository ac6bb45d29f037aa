package archive

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// Seal seals content as a blob. The caller chooses the kind: a word of a-z, 0-9 and hyphens.
func Seal(kind string, content []byte, o Options) ([]byte, Sum, error) {
	if err := checkKind(kind); err != nil {
		return nil, Sum{}, err
	}
	head := append(binary.AppendUvarint(nil, uint64(len(kind))), kind...)
	if size := len(head) + len(content) + checksum; size > MaxPayload {
		return nil, Sum{}, fmt.Errorf("%w: the %s has %d bytes, and %d MiB is the limit", ErrFull, kind,
			size, MaxPayload>>20)
	}
	s, err := newSealer(contentBlob, o)
	if err != nil {
		return nil, Sum{}, err
	}
	defer s.release()
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, content)
	for _, part := range [][]byte{head, content, binary.LittleEndian.AppendUint32(nil, sum)} {
		if _, err := s.Write(part); err != nil {
			return nil, Sum{}, err
		}
	}
	return s.finish()
}

// Unseal returns the content of a blob. The blob must be of the given kind.
func Unseal(data []byte, kind string, identities Identities) ([]byte, error) {
	payload, err := openPayload(data, contentBlob, kind, identities, nil)
	if err != nil {
		return nil, err
	}
	length, n := binary.Uvarint(payload)
	if n <= 0 || length > maxKind || length > uint64(len(payload)-n) {
		return nil, corrupt("the kind of the blob is cut off")
	}
	content := payload[n+int(length):]
	if found := string(payload[n : n+int(length)]); found != kind {
		return nil, corrupt("it is a blob of kind %q, and should be of kind %q", found, kind)
	}
	return content, nil
}

// SealJSON seals a value as JSON.
func SealJSON(kind string, value any, o Options) ([]byte, Sum, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return nil, Sum{}, invalid("the %s cannot be written as JSON: %w", kind, err)
	}
	return Seal(kind, content, o)
}

// UnsealJSON unseals a blob of a kind and decodes its JSON into value.
func UnsealJSON(data []byte, kind string, identities Identities, value any) error {
	content, err := Unseal(data, kind, identities)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, value); err != nil {
		return corrupt("the %s: %w", kind, err)
	}
	return nil
}
