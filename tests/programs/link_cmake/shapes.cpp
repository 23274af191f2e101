#include <map>
#include <memory>
#include <stdexcept>
#include <string>

struct Shape {
  virtual ~Shape() = default;
  [[nodiscard]] virtual int area() const = 0;
};
struct Square : Shape {
  explicit Square(int side) : side_(side) {}
  [[nodiscard]] int area() const override { return side_ * side_; }
  int side_;
};

int main() {
  std::map<std::string, std::unique_ptr<Shape>> shapes;
  for (int i = 0; i < 1000; ++i) {
    shapes["shape number " + std::to_string(i)] = std::make_unique<Square>(i % 10);
  }
  int sum = 0;
  for (const auto& [name, shape] : shapes) {
    sum += shape->area();
  }
  try {
    throw std::runtime_error("caught");
  } catch (const std::exception& error) {
    sum += static_cast<int>(std::string(error.what()).size());
  }
  return sum == 28500 + 6 ? 0 : 1;
}
