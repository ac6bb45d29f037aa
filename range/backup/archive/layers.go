package archive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
)

const (
	magic   = "TMBK"
	version = 1

	formZstd   = 1
	formAge    = 2
	formsKnown = formZstd | formAge

	contentPiece = 1
	contentBlob  = 2

	// outerHeader is the total length of the fields magic, version, form and content.
	outerHeader = len(magic) + 3
	checksum    = 4

	maxRecipients = 64
	// maxRecipient is the length of the longest recipient, as text.
	maxRecipient = 256

	// window is the compressor's window size. maxWindow is the largest window that a reader accepts.
	window    = 4 << 20
	maxWindow = 8 << 20
	// readStep is the least amount of free space that the reader of a payload begins with.
	readStep = 64 << 10
	// typicalPayload is larger than the payload of most pieces. Only a large record at the end of a
	// piece makes a payload larger.
	typicalPayload = 26 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options say how a piece or blob is sealed. The zero value compresses fast and does not encrypt.
type Options struct {
	// Recipients can decrypt the data. If there are no recipients, the data is not encrypted.
	Recipients Recipients
	// Level is the compression level, from 1, the fastest and the default, to 4.
	Level int
	// Space is memory for the sealed bytes. They use as much of the space as they need, and own it
	// afterwards.
	Space []byte
}

func (o Options) check() error {
	switch {
	case o.Level < 0 || o.Level > int(zstd.SpeedBestCompression):
		return invalid("the level of compression is 1 to %d, and not %d", zstd.SpeedBestCompression,
			o.Level)
	case len(o.Recipients) > maxRecipients:
		return invalid("a backup has at most %d recipients, and not %d", maxRecipients, len(o.Recipients))
	}
	return nil
}

func (o Options) level() int { return max(o.Level, int(zstd.SpeedFastest)) }

// encoders has the compressors that are not in use, by level. A compressor has tables of some MiB.
var encoders [zstd.SpeedBestCompression + 1]sync.Pool

// sealer puts a payload into its layers while the payload is being written.
type sealer struct {
	sealed  bytes.Buffer
	level   int
	encoder *zstd.Encoder
	// encrypted encrypts the output of encoder into sealed. It is nil without encryption.
	encrypted io.WriteCloser
}

func newSealer(content byte, o Options) (*sealer, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &sealer{level: o.level(), sealed: *bytes.NewBuffer(o.Space[:0])}
	s.sealed.WriteString(magic)
	form := byte(formZstd)
	if len(o.Recipients) > 0 {
		form |= formAge
	}
	s.sealed.Write([]byte{version, form, content})
	var below io.Writer = &s.sealed
	if len(o.Recipients) > 0 {
		s.sealed.Write(binary.AppendUvarint(nil, uint64(len(o.Recipients))))
		recipients := make([]age.Recipient, len(o.Recipients))
		for i, recipient := range o.Recipients {
			text := recipient.String()
			s.sealed.Write(binary.AppendUvarint(nil, uint64(len(text))))
			s.sealed.WriteString(text)
			recipients[i] = recipient
		}
		var err error
		if s.encrypted, err = age.Encrypt(&s.sealed, recipients...); err != nil {
			return nil, fmt.Errorf("%w: cannot encrypt: %w", ErrInvalid, err)
		}
		below = s.encrypted
	}
	if pooled, ok := encoders[s.level].Get().(*zstd.Encoder); ok {
		pooled.Reset(below)
		s.encoder = pooled
		return s, nil
	}
	var err error
	s.encoder, err = zstd.NewWriter(below, zstd.WithEncoderLevel(zstd.EncoderLevel(s.level)),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	return s, err
}

// Write implements io.Writer.
func (s *sealer) Write(p []byte) (int, error) { return s.encoder.Write(p) }

// finish ends all layers, and returns the sealed bytes and their Sum. The sealer cannot be used
// afterwards.
func (s *sealer) finish() ([]byte, Sum, error) {
	err := s.encoder.Close()
	if err == nil && s.encrypted != nil {
		err = s.encrypted.Close()
	}
	s.release()
	if err != nil {
		return nil, Sum{}, err
	}
	sum := crc32.Checksum(s.sealed.Bytes(), castagnoli)
	s.sealed.Write(binary.LittleEndian.AppendUint32(nil, sum))
	if s.sealed.Len() > MaxSealed {
		return nil, Sum{}, fmt.Errorf("%w: it has %d bytes, and %d MiB is the limit", ErrFull,
			s.sealed.Len(), MaxSealed>>20)
	}
	return s.sealed.Bytes(), SumOf(s.sealed.Bytes()), nil
}

// release returns the compressor to the pool. It may be called twice.
func (s *sealer) release() {
	if s.encoder != nil {
		s.encoder.Reset(nil)
		encoders[s.level].Put(s.encoder)
		s.encoder = nil
	}
}

// Info describes sealed bytes as far as that is possible without an identity.
type Info struct {
	// Piece is set for a piece, and unset for a blob.
	Piece bool
	// Recipients are the recipients ("age1...") that the bytes are encrypted for. It is empty if the
	// bytes are not encrypted.
	Recipients []string
}

// Inspect checks the outer checksum of sealed bytes and returns a description of them.
func Inspect(data []byte) (Info, error) {
	o, err := openOuter(data)
	return Info{Piece: o.content == contentPiece, Recipients: o.recipients}, err
}

// outer is the outermost layer, decoded.
type outer struct {
	content    byte
	encrypted  bool
	recipients []string
	body       []byte
}

// openOuter checks the outermost layer. It checks the version before the checksum, because a newer
// version may use another checksum.
func openOuter(data []byte) (outer, error) {
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return outer{}, corrupt("it does not begin like data of a backup (%d bytes)", len(data))
	}
	if len(data) < outerHeader+checksum || len(data) > MaxSealed {
		return outer{}, corrupt("it has %d bytes", len(data))
	}
	sum := crc32.Checksum(data[:len(data)-checksum], castagnoli)
	intact := sum == binary.LittleEndian.Uint32(data[len(data)-checksum:])
	if v := data[len(magic)]; v > version {
		if !intact { // a later version may have another checksum
			return outer{}, fmt.Errorf("%w, or it is %w: it has format %d, and this version reads up to %d",
				ErrNewer, ErrCorrupt, v, version)
		}
		return outer{}, fmt.Errorf("%w: it has format %d, and this version reads up to %d", ErrNewer, v,
			version)
	}
	if !intact {
		return outer{}, corrupt("the checksum of the %d bytes is wrong", len(data))
	}
	form, content := data[len(magic)+1], data[len(magic)+2]
	switch {
	case data[len(magic)] == 0:
		return outer{}, corrupt("it has format 0")
	case form&^formsKnown != 0 || form&formZstd == 0:
		return outer{}, fmt.Errorf("%w: it is compressed or encrypted in form %d, which this version "+
			"does "+
			"not know", ErrNewer, form)
	case content != contentPiece && content != contentBlob:
		return outer{}, fmt.Errorf("%w: its content is of kind %d, which this version does not know",
			ErrNewer, content)
	}
	o := outer{content: content, encrypted: form&formAge != 0,
		body: data[outerHeader : len(data)-checksum]}
	if !o.encrypted {
		return o, nil
	}
	count, ok := o.uvarint(maxRecipients)
	if !ok || count == 0 {
		return outer{}, corrupt("it does not say for whom it is encrypted")
	}
	for range count {
		length, ok := o.uvarint(maxRecipient)
		if !ok || length > len(o.body) {
			return outer{}, corrupt("it does not say for whom it is encrypted")
		}
		text := string(o.body[:length])
		if _, err := age.ParseX25519Recipient(text); err != nil {
			return outer{}, corrupt("it is encrypted for the recipient %q: %w", text, err)
		}
		o.recipients = append(o.recipients, text)
		o.body = o.body[length:]
	}
	return o, nil
}

// uvarint removes a number from the front of the body. ok is false if the body has no number there,
// or if the number is above the limit.
func (o *outer) uvarint(limit uint64) (n int, ok bool) {
	value, length := binary.Uvarint(o.body)
	if length <= 0 || value > limit {
		return 0, false
	}
	o.body = o.body[length:]
	return int(value), true
}

// decoders has the decompressors that are not in use.
var decoders sync.Pool

// payload decrypts and decompresses the body. It uses space if that is large enough.
func (o *outer) payload(identities Identities, space []byte) ([]byte, error) {
	var body io.Reader = bytes.NewReader(o.body)
	if o.encrypted {
		var err error
		if body, err = decrypt(body, o.recipients, identities); err != nil {
			return nil, err
		}
	}
	decoder, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(MaxPayload),
			zstd.WithDecodeBuffersBelow(0))
		if err != nil {
			return nil, err
		}
	}
	defer func() {
		if decoder.Reset(nil) == nil {
			decoders.Put(decoder)
		}
	}()
	if err := decoder.Reset(body); err != nil {
		return nil, corrupt("it cannot be decompressed: %w", err)
	}
	// Most pieces shrink to no less than a quarter, and most payloads are no larger than
	// typicalPayload. The space grows with the bytes that were read. The sizes that the data claims
	// are not trusted.
	payload := space[:0]
	if least := len(o.body) + readStep; cap(space) < least {
		payload = make([]byte, 0,
			min(MaxPayload, max(least, min(4*len(o.body)+readStep, typicalPayload))))
	}
	for {
		if len(payload) == cap(payload) {
			if len(payload) == MaxPayload {
				// A single further byte exceeds the limit.
				if n, err := decoder.Read(make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
					return payload, nil
				}
				return nil, corrupt("it decompresses to more than %d MiB", MaxPayload>>20)
			}
			grown := make([]byte, len(payload), min(MaxPayload, 2*cap(payload)))
			copy(grown, payload)
			payload = grown
		}
		n, err := decoder.Read(payload[len(payload):cap(payload)])
		payload = payload[:len(payload)+n]
		switch {
		case errors.Is(err, io.EOF):
			return payload, nil
		case errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
			return nil, corrupt("it decompresses to more than %d MiB: %w", MaxPayload>>20, err)
		case err != nil:
			return nil, corrupt("it cannot be decrypted or decompressed behind %d bytes: %w", len(payload),
				err)
		}
	}
}

// openPayload opens all layers, and checks and removes the payload's checksum. The payload uses
// space if that is large enough.
func openPayload(data []byte, content byte, what string, identities Identities,
	space []byte) ([]byte, error) {
	o, err := openOuter(data)
	if err != nil {
		return nil, err
	}
	if o.content != content {
		return nil, corrupt("it is no %s", what)
	}
	payload, err := o.payload(identities, space)
	if err != nil {
		return nil, err
	}
	if len(payload) < checksum {
		return nil, corrupt("its payload has %d bytes", len(payload))
	}
	end := len(payload) - checksum
	if crc32.Checksum(payload[:end], castagnoli) != binary.LittleEndian.Uint32(payload[end:]) {
		return nil, corrupt("the checksum of the payload, of %d bytes, is wrong", len(payload))
	}
	return payload[:end], nil
}
