# Planted: item::stray
puts 1
