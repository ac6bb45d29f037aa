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

	// outerHeader is the length of magic, version, form and content.
	outerHeader = len(magic) + 3
	checksum    = 4

	maxRecipients = 64
	// maxRecipient is the length of the longest recipient, as text.
	maxRecipient = 256

	// window is that of the compressor, and maxWindow the largest that is decompressed.
	window    = 4 << 20
	maxWindow = 8 << 20
	// readStep is how much space the reader of a payload has at least.
	readStep = 64 << 10
	// typicalPayload is more than what a piece has, but for a large record at its end.
	typicalPayload = 26 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options are how a piece or blob is sealed. The zero value compresses fast, and does not encrypt.
type Options struct {
	// Recipients are whom the data is encrypted for; if there are none, it is not encrypted.
	Recipients Recipients
	// Level is that of the compressor, from 1, which is the fastest and the default, to 4.
	Level int
	// Space is memory for the sealed bytes, which is used as far as it goes, and belongs to them then.
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

// encoders has compressors that are not in use, by level. A compressor has some MiB of tables.
var encoders [zstd.SpeedBestCompression + 1]sync.Pool

// sealer puts a payload into its layers while it is written.
type sealer struct {
	sealed  bytes.Buffer
	level   int
	encoder *zstd.Encoder
	// encrypted is between the encoder and the buffer; nil without encryption.
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

// finish ends all layers. The sealer cannot be used afterwards.
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

// release gives the compressor back. It may be called twice.
func (s *sealer) release() {
	if s.encoder != nil {
		s.encoder.Reset(nil)
		encoders[s.level].Put(s.encoder)
		s.encoder = nil
	}
}

// Info is what can be said of sealed bytes without an identity.
type Info struct {
	// Piece is set for a piece, and unset for a blob.
	Piece bool
	// Recipients are whom the bytes are encrypted for ("age1..."); empty if they are not encrypted.
	Recipients []string
}

// Inspect checks the outer checksum of sealed bytes, and returns what they are.
func Inspect(data []byte) (Info, error) {
	o, err := openOuter(data)
	return Info{Piece: o.content == contentPiece, Recipients: o.recipients}, err
}

// outer is the outermost layer.
type outer struct {
	content    byte
	encrypted  bool
	recipients []string
	body       []byte
}

// openOuter checks the outermost layer. The version comes before the checksum, because a newer one
// may have another checksum.
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

// uvarint takes a number off the body; ok is unset if there is none, or it is above a limit.
func (o *outer) uvarint(limit uint64) (n int, ok bool) {
	value, length := binary.Uvarint(o.body)
	if length <= 0 || value > limit {
		return 0, false
	}
	o.body = o.body[length:]
	return int(value), true
}

// decoders has decompressors that are not in use.
var decoders sync.Pool

// payload decrypts and decompresses the body, into space if that is large enough.
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
	// Typical pieces shrink to a quarter at most, and have no more than typicalPayload. The space
	// grows with what is read, and not with what the data says about itself.
	payload := space[:0]
	if least := len(o.body) + readStep; cap(space) < least {
		payload = make([]byte, 0,
			min(MaxPayload, max(least, min(4*len(o.body)+readStep, typicalPayload))))
	}
	for {
		if len(payload) == cap(payload) {
			if len(payload) == MaxPayload {
				// One byte more is too much.
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

// openPayload opens all layers, and checks and removes the payload's checksum. The payload is in
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
