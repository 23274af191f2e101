// Writes fitted models as the JSON that docs/synth.md describes, and reads them.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "model.h"
#include "trace/json.h"

namespace heapwright::model {

using trace::Json;

// Without the fields that Python adds: schema, version, libraries and origin.
Json to_json(const Model& model);
Json to_json(const RandMallocModel& model);

using AnyModel = std::variant<Model, RandMallocModel>;

// Reads a whole model file. Python has checked the types of its fields; the values are checked
// here. Returns false, with one line in `error`, if the text is not a model or contradicts itself.
bool read_model(std::string_view text, AnyModel& model, std::string& error);

}  // namespace heapwright::model
