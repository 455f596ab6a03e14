// Reading one record that the catalog names, with every check that stands between damaged bytes and
// an engine.
#ifndef INFERSCALE_STORE_RECORD_READER_H_
#define INFERSCALE_STORE_RECORD_READER_H_

#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "store/catalog.h"
#include "store/env.h"
#include "store/segment.h"

namespace inferscale {

// kCorrupt unless `header` (up to the payload) is whole and is what `row` says. kUnsupported if it
// is sound but of a later version.
Result<RecordHeader> VerifyHeader(const CatalogRow& row, ByteSpan header);
// The same, and `payload` is the one that belongs to it.
Result<KvRecordInfo> VerifyRecord(const CatalogRow& row, ByteSpan header, ByteSpan payload);

// Reads the record of `row` with its payload straight into `payload` (row.payload_bytes). Errors of
// VerifyRecord; kNotFound if the segment file is not there; kTransient if the system refuses.
Result<KvRecordInfo> ReadRecord(Env& env, const std::string& dir, const CatalogRow& row,
                                MutableByteSpan payload);

// As ReadRecord, without the payload: does the record itself say what the row says?
Result<KvRecordInfo> ReadRecordInfo(Env& env, const std::string& dir, const CatalogRow& row);

// Bytes before the payload. kCorrupt if the row's numbers can't belong to a record.
Result<uint64_t> PayloadOffset(const CatalogRow& row);

}  // namespace inferscale

#endif  // INFERSCALE_STORE_RECORD_READER_H_
